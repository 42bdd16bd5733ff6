"""The secure sum: the aggregator learns the total of the updates over the whole cohort, and nothing else.

Every sum of a run is over the same cohort; docs/protocol.md argues why that hides single updates.
Set-up, once a run, is two relays; a round is one message each way. `terms` is the same at both sides.

    participant                                             aggregator
    side = SecureSite.begin(terms, identity, entropy)
    side.advert()                                      →    accept_advert(terms, known, advert, verify)
                                                       ←    Roster, once everybody has advertised
    side.share(roster)                                 →    accept_shares(roster_digest, cohort, sender, key, shares)
                                                       ←    shares_for(receiver, all_shares)
    side.complete(roster, shares)
                                                       ←    Opening
    side.admit(opening) is Numbers.NEW: compute the update and save it
    side.answer(opening, update): Masked               →    added modulo 2⁶⁴
                                  Misfit               →    the same opening with one more lift
                                                            open_sum(terms, opening, context, values, tag, members)

The participant saves `side.record` before it sends any answer: a side restored from it says the same bytes again.
"""
