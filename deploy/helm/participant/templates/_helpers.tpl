{{- define "dcfpca.name" -}}
{{- printf "%s-%s" .Release.Name (trimPrefix "dcfpca-" .Chart.Name) | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "dcfpca.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dcfpca.labels" -}}
{{ include "dcfpca.selector" . }}
app.kubernetes.io/part-of: dcfpca
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dcfpca.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The keys of one TOML table; JSON's scalars and lists are TOML's. */}}
{{- define "dcfpca.toml" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}

{{- define "dcfpca.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
# Secrets and volumes belong to this group; keys are mounted 0440 and owned by root, which the service accepts.
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "dcfpca.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities: { drop: [ALL] }
{{- end }}

{{/* Certificates as the service expects them, the revocation list beside them where there is one. */}}
{{- define "dcfpca.tlsVolume" -}}
name: tls
projected:
  defaultMode: 0440
  sources:
    - secret:
        name: {{ .Values.tls.secretName }}
        items:
          - { key: tls.crt, path: tls.crt }
          - { key: tls.key, path: tls.key }
          - { key: ca.crt, path: ca.crt }
    {{- with .Values.tls.crlConfigMap }}
    - configMap:
        name: {{ . }}
        items:
          - { key: crl.pem, path: crl.pem }
    {{- end }}
{{- end }}
