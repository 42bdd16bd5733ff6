#!/bin/sh
# A development PKI in one go: CA, one aggregator on loopback, one operator, and participants.
# All keys are made on this machine. For organizations, use the request / approve ceremony of README.md.
#
#   certs/dev-pki.sh [DIR] [PARTICIPANT…]     default: certs/dev site-a site-b site-c
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/dev}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- site-a site-b site-c

# The checkout's own command if there is one, else the installed one; DCFPCA names another.
dcfpca=${DCFPCA:-$here/../.venv/bin/dcfpca}
command -v "$dcfpca" >/dev/null 2>&1 || dcfpca=dcfpca

"$dcfpca" certs init --dir "$dir/ca" --consortium dev
"$dcfpca" certs issue --dir "$dir/ca" aggregator aggregator --host localhost --host 127.0.0.1 --out "$dir/aggregator"
"$dcfpca" certs issue --dir "$dir/ca" operator operator --out "$dir/operator"
for participant in "$@"; do
    "$dcfpca" certs issue --dir "$dir/ca" participant "$participant" --out "$dir/$participant"
done
cp "$dir/ca/crl.pem" "$dir/aggregator/crl.pem"
"$dcfpca" certs list --dir "$dir/ca"
