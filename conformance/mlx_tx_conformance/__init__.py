"""The conformance suite: is this attention right, and which clause does it break?"""

__version__ = "0.1.0"
