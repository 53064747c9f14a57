# Nothing of this file stays in the shell but the variables; the status is that of the work.
if _softipu_enable; then
    unset -f _softipu_complain _softipu_where _softipu_prepend _softipu_enable 2>/dev/null || true
else
    unset -f _softipu_complain _softipu_where _softipu_prepend _softipu_enable 2>/dev/null || true
    false
fi
