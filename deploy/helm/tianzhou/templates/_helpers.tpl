{{- define "tianzhou.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tianzhou.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Addresses of all name servers, joined by semicolons. */}}
{{- define "tianzhou.namesrv" -}}
{{- $name := include "tianzhou.name" . -}}
{{- range $n := until (int .Values.namesrv.replicas) -}}
{{- if $n }};{{ end -}}
{{ $name }}-namesrv-{{ $n }}.{{ $name }}-namesrv.{{ $.Release.Namespace }}.svc:9876
{{- end -}}
{{- end -}}

{{- define "tianzhou.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (toString .Values.image.tag) | quote }}
{{ include "tianzhou.container" . }}
{{- end -}}

{{- define "tianzhou.console.image" -}}
image: {{ printf "%s:%s" .Values.console.repository (toString .Values.image.tag) | quote }}
{{ include "tianzhou.container" . }}
{{- end -}}

{{/* Fields of each container of ours. */}}
{{- define "tianzhou.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- define "tianzhou.pod" -}}
terminationGracePeriodSeconds: 30
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.pod }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Keys that servers of both kinds get. */}}
{{- define "tianzhou.settings" -}}
metricsExporterType=PROM
metricsPromExporterHost=0.0.0.0
{{- if .Values.accounts.secret }}
aclEnable=true
aclConfigPath=/etc/tianzhou-accounts/plain_acl.yml
{{- end }}
{{- if .Values.tls.secret }}
tls.server.mode=enforcing
tls.server.certPath=/etc/tianzhou-tls/tls.crt
tls.server.keyPath=/etc/tianzhou-tls/tls.key
tls.client.authServer=true
tls.client.trustCertPath=/etc/tianzhou-tls/ca.crt
{{- end }}
{{- end -}}

{{- define "tianzhou.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.accounts.secret }}
- {name: accounts, mountPath: /etc/tianzhou-accounts, readOnly: true}
{{- end }}
{{- if .Values.tls.secret }}
- {name: tls, mountPath: /etc/tianzhou-tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tianzhou.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- with .Values.accounts.secret }}
- {name: accounts, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.tls.secret }}
- {name: tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end -}}

{{/* Probes of a server, by its page of metrics. */}}
{{- define "tianzhou.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne .Values.tls.secret "") -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 5
  failureThreshold: {{ div (int .Values.broker.startSeconds) 5 }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{/* Metadata of an object: a list of all values and its name. */}}
{{- define "tianzhou.metadata" -}}
metadata:
  name: {{ index . 1 }}
  labels: {{- include "tianzhou.labels" (index . 0) | nindent 4 }}
{{- end -}}

{{/* A volume of a StatefulSet: a list of its size and class. */}}
{{- define "tianzhou.claim" -}}
- metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with index . 1 }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ index . 0 }}}}
{{- end -}}
