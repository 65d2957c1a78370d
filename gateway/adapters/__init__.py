"""Adapters: what a provider's file says and does, loaded, checked and run."""

from __future__ import annotations

from gateway.adapters.hooks import HOOKS, Adapter, Context, Hook, Hooks
from gateway.adapters.loader import Loader, builtin_folder, check_options
from gateway.adapters.settings import Settings, settings
from gateway.adapters.thinking import in_chat, read_wish

__all__ = ["HOOKS", "Adapter", "Context", "Hook", "Hooks", "Loader", "Settings", "builtin_folder", "check_options", "in_chat", "read_wish", "settings"]
