#!/bin/sh
# One-shot service of compose.yaml: a development CA, and for every party its own volume with its own key.
# In a real consortium nobody holds all keys: see certs/README.md for the ceremony.
set -eu

parties=${PARTIES:-/parties}
owner=${OWNER:-10001:10001}
ca=$parties/ca

place() { # ROLE NAME [--host HOST]…: key and certificate under the names that the configs use
    role=$1 name=$2
    shift 2
    dcfpca certs issue --dir "$ca" "$role" "$name" "$@" --out "$parties/$name/tls"
    mv "$parties/$name/tls/$name.crt" "$parties/$name/tls/tls.crt"
    mv "$parties/$name/tls/$name.key" "$parties/$name/tls/tls.key"
    cp "$ca/crl.pem" "$parties/$name/tls/crl.pem"
}

if [ -e "$ca/ca.key" ]; then
    echo "the certificates are there already"
    exit 0
fi
dcfpca certs init --dir "$ca" --consortium demo
place aggregator aggregator --host aggregator --host localhost --host 127.0.0.1
place aggregator standby --host standby --host localhost --host 127.0.0.1
place operator operator
for site in site-a site-b site-c; do
    place participant "$site"
done
for party in ca aggregator standby operator site-a site-b site-c; do
    chown -R "$owner" "$parties/$party"
done
