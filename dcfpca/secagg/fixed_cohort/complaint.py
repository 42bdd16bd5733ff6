"""A signed complaint of a site, with the accused and the error, which is relayed to the operator."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.secagg.errors import InventedParticipant, SecureSumRefusal, SwappedKey
from dcfpca.secagg.evidence import Evidence
from dcfpca.secagg.fixed_cohort.domain_separation import canonical
from dcfpca.secagg.fixed_cohort.run_terms import RunTerms
from dcfpca.secagg.identity import SigningIdentity, Verify, signed


@dataclass(frozen=True, slots=True)
class Complaint:
    """Participant → aggregator → operator. An empty `accused` accuses the aggregator or nobody in particular."""

    author: str
    accused: str
    error: str
    sentence: str
    certificate: bytes
    signature: bytes

    def statement(self, binding: bytes) -> bytes:
        """The statement that the author signs."""
        return canonical("complaint", binding, self.author, self.accused, self.error, self.sentence)


def evidence_statement(terms: RunTerms, author: str, evidence: Evidence) -> bytes:
    """The statement that a site signs about a lie of the aggregator."""
    digests = (evidence.context, evidence.announced, evidence.found)
    return canonical("evidence", terms.binding, author, evidence.round, *digests)


def check_evidence(terms: RunTerms, author: str, evidence: Evidence, seal: tuple[bytes, bytes], verify: Verify) -> None:
    """Raise unless this member signed the evidence; `seal` is its certificate and signature."""
    certificate, signature = seal
    if not signed(verify(certificate, author), signature, evidence_statement(terms, author, evidence)):
        raise SwappedKey(f"{author} did not sign this evidence")


def complain(terms: RunTerms, identity: SigningIdentity, error: SecureSumRefusal) -> Complaint:
    """The complaint that a refusal gives rise to."""
    unsigned = Complaint(
        identity.name, error.accused, type(error).__name__, str(error), identity.certificate, signature=b""
    )
    signature = identity.sign(unsigned.statement(terms.binding))
    return Complaint(
        unsigned.author, unsigned.accused, unsigned.error, unsigned.sentence, unsigned.certificate, signature
    )


def check_complaint(terms: RunTerms, complaint: Complaint, verify: Verify) -> None:
    """Raise unless a member of the cohort signed this complaint about this run."""
    if complaint.author not in terms.cohort or complaint.accused not in ("", *terms.cohort):
        raise InventedParticipant(f"the complaint of {complaint.author} is not between members of run {terms.run}")
    identity = verify(complaint.certificate, complaint.author)
    if not signed(identity, complaint.signature, complaint.statement(terms.binding)):
        raise SwappedKey(f"{complaint.author} did not sign this complaint")
