"""`manage.py up --demo`: four stories on real third-party targets."""

from saga_console.demo.play import main, prepare, stop

__all__ = ["main", "prepare", "stop"]
