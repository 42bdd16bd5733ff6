"""Carries out one run at the site: the session decides, and this package saves, computes and sends."""

from participant.driver.run_driver import RunDriver
from participant.driver.site_services import SiteServices

__all__ = ["RunDriver", "SiteServices"]
