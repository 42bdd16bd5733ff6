(function () {
  var box = document.getElementById("search"), only = document.getElementById("only"), told = document.getElementById("told");
  if (!box) { return; }
  function apply() {
    var words = box.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0, cards = 0;
    document.querySelectorAll("[data-text]").forEach(function (one) {
      var text = one.getAttribute("data-text"), flag = one.getAttribute("data-flag");
      var fits = words.every(function (word) { return text.indexOf(word) >= 0; }) && !(only.checked && flag === "no");
      one.hidden = !fits;
      if (one.classList.contains("card")) { cards += 1; shown += fits ? 1 : 0; }
    });
    told.textContent = words.length || only.checked ? shown + " of " + cards + " drawn samples" : "";
  }
  box.addEventListener("input", apply);
  only.addEventListener("change", apply);
})();
