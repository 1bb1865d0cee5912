"""PyInstaller runs this where a program imports `redlock.scripts`: the Lua files belong to it."""

from PyInstaller.utils.hooks import collect_data_files

datas = collect_data_files("redlock.scripts")
