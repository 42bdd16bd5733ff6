"""The fixed-cohort protocol (v2): one cohort for the run, one message each way in a round (see docs/protocol.md).

Set-up, once a run, is two relays; a round is one message each way. `terms` is the same at both sides.

    participant                                             aggregator
    side = FixedCohortSide.begin(terms, identity, entropy)
    side.advert()                                      →    accept_advert(terms, known, advert, verify)
                                                       ←    roster = close_roster(terms, known, verify)
    side.share(roster)                                 →    accept_shares(roster_digest, cohort, sender, key, shares)
                                                       ←    shares_for(receiver, all_shares)
    side.complete(roster, shares)
                                                       ←    Opening;  tally = begin_tally(terms, roster, opening)
    side.admit(opening, check) is Numbers.NEW: compute the update and save it
    side.answer(opening, update): Masked               →    tally.add(masked)
                                  Misfit               →    the same opening with one more lift
                                                            open_sum(terms, opening, tally)

The participant saves `side.record` before it sends any answer: a side restored from it says the same bytes again.
"""

from dcfpca.secagg.fixed_cohort.aggregator import (
    OpenedSum,
    Tally,
    accept_advert,
    accept_shares,
    begin_tally,
    close_roster,
    open_sum,
    shares_for,
)
from dcfpca.secagg.fixed_cohort.block_layout import Block, BlockLayout
from dcfpca.secagg.fixed_cohort.complaint import (
    Complaint,
    check_complaint,
    check_evidence,
    complain,
    evidence_statement,
)
from dcfpca.secagg.fixed_cohort.differencing_check import Exposure, PastRun, exposure
from dcfpca.secagg.fixed_cohort.messages import Advert, Masked, Misfit, Opening, Roster, SealedShare
from dcfpca.secagg.fixed_cohort.run_terms import RunTerms
from dcfpca.secagg.fixed_cohort.site import FixedCohortSide, Numbers

__all__ = [
    "Advert",
    "Block",
    "BlockLayout",
    "Complaint",
    "Exposure",
    "FixedCohortSide",
    "Masked",
    "Misfit",
    "Numbers",
    "OpenedSum",
    "Opening",
    "PastRun",
    "Roster",
    "RunTerms",
    "SealedShare",
    "Tally",
    "accept_advert",
    "accept_shares",
    "begin_tally",
    "check_complaint",
    "check_evidence",
    "close_roster",
    "complain",
    "evidence_statement",
    "exposure",
    "open_sum",
    "shares_for",
]
