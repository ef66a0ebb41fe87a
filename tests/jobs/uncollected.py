"""The tiny job where Python's collector does not run: what stays, stays because something holds it, or itself."""

import gc

import tiny

gc.disable()
job = tiny.job
