(function () {
  var box = document.getElementById("search"), only = document.getElementById("only"), matches = document.getElementById("matches");
  if (!box) { return; }
  function apply() {
    var phrase = box.value.toLowerCase().trim(), words = phrase.split(/\s+/).filter(Boolean), shown = 0, cards = 0, lines = 0;
    document.querySelectorAll("[data-text]").forEach(function (one) {
      var text = one.getAttribute("data-text"), flag = one.getAttribute("data-flag");
      var named = text.indexOf(phrase) >= 0 || words.every(function (word) { return (" " + text).indexOf(" " + word) >= 0; });
      var fits = named && !(only.checked && flag === "no");
      one.hidden = !fits;
      if (one.classList.contains("card")) { cards += 1; shown += fits ? 1 : 0; }
      var list = one.closest("details");
      if (list && fits) { lines += 1; }
      if (list && words.length) { list.open = true; }
    });
    matches.textContent = words.length || only.checked ? shown + " of " + cards + " drawn samples, " + lines + " lines of the list" : "";
  }
  box.addEventListener("input", apply);
  only.addEventListener("change", apply);
})();
