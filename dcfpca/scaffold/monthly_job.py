"""The monthly run of an operator: a systemd service with its timer, and a Kubernetes CronJob. Pure."""

from __future__ import annotations

import json

NAME = "dcfpca-monthly"


def monthly_files(config: str, spec: str, version: str) -> dict[str, str]:
    """Their texts by file name; `config` is the operator's file and `spec` that of the run, by absolute paths."""
    return {
        f"{NAME}.service": _SERVICE.format(config=config, command=_command(spec).replace("%", "%%").replace("$", "$$")),
        f"{NAME}.timer": _TIMER,
        f"{NAME}.cronjob.yaml": _CRONJOB.format(
            name=NAME, version=version, command=json.dumps(_command("/etc/dcfpca/spec.toml"))
        ),
    }


def _command(spec: str) -> str:
    """For a shell, which works out the label; the sites' own answers and its end are in the exit code."""
    return f'dcfpca run start "{spec}" --warm-start latest --label "$(date +%Y-%m)" --watch'


_SERVICE = """\
# Copy this and the timer to /etc/systemd/system, then: systemctl enable --now dcfpca-monthly.timer
[Unit]
Description=Monthly run of DCF-PCA
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
Environment="DCFPCA_CONFIG={config}"
ExecStart=/bin/sh -c '{command}'
"""
_TIMER = """\
[Unit]
Description=On the first day of each month, or when the machine is back

[Timer]
OnCalendar=monthly
Persistent=true

[Install]
WantedBy=timers.target
"""
_CRONJOB = """\
# kubectl apply -f this, or put it among the templates of your Helm chart. Its secret:
# kubectl create secret generic dcfpca-operator --from-file=operator.toml --from-file=spec.toml --from-file=ca.crt \\
#   --from-file=operator.crt --from-file=operator.key
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {name}
spec:
  schedule: "0 3 1 * *"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          automountServiceAccountToken: false
          securityContext:
            runAsNonRoot: true
            runAsUser: 10001
            fsGroup: 10001
          containers:
            - name: run
              image: dcfpca:{version}
              command: ["/bin/sh", "-c", {command}]
              env:
                - name: DCFPCA_CONFIG
                  value: /etc/dcfpca/operator.toml
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: ["ALL"]
              volumeMounts:
                - name: operator
                  mountPath: /etc/dcfpca
                  readOnly: true
          volumes:
            - name: operator
              secret:
                secretName: dcfpca-operator
                defaultMode: 0440
"""
