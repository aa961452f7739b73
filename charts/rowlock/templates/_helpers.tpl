{{- define "rowlock.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "rowlock.operatorName" -}}
{{- include "rowlock.fullname" . }}-operator
{{- end }}

{{- /* Labels of an object: (dict "root" $ "component" "operator"). */}}
{{- define "rowlock.labels" -}}
{{ include "rowlock.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "rowlock.selector" -}}
app.kubernetes.io/name: rowlock
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "rowlock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "rowlock.operatorName" .) -}}
{{- end }}

{{- define "rowlock.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion -}}
{{- end }}

{{- define "rowlock.workerImage" -}}
{{- .Values.workerImage.repository }}:{{ .Values.workerImage.tag | default .Chart.AppVersion -}}
{{- end }}

{{- define "rowlock.databaseName" -}}
{{- include "rowlock.fullname" . }}-database
{{- end }}

{{- /* The Secret with the URL, as {"name": …, "key": …}. */}}
{{- define "rowlock.databaseSecret" -}}
{{- $existing := .Values.database.existingSecret }}
{{- if and $existing.name .Values.database.dev.enabled }}
{{- fail "database: set existingSecret.name or dev.enabled, not both" }}
{{- else if .Values.database.dev.enabled }}
{{- dict "name" (include "rowlock.databaseName" .) "key" "url" | toJson }}
{{- else if $existing.name }}
{{- dict "name" $existing.name "key" $existing.key | toJson }}
{{- else }}
{{- fail "database.existingSecret.name is empty: name a Secret with the URL of a PostgreSQL, or try with database.dev.enabled=true" }}
{{- end }}
{{- end }}

{{- define "rowlock.migrationSecret" -}}
{{- $own := .Values.database.migrations.existingSecret }}
{{- if $own.name }}{{ dict "name" $own.name "key" $own.key | toJson }}{{ else }}{{ include "rowlock.databaseSecret" . }}{{ end }}
{{- end }}

{{- /* Restricted pod security: of the Pod, then of each container. */}}
{{- define "rowlock.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "rowlock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Variables of a map of settings: (dict "prefix" "ROWLOCK_" "settings" …).
       As JSON, because Go writes a number of a million or more as 1e+06. */}}
{{- define "rowlock.settings" -}}
{{- range $name, $value := .settings }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ $.prefix }}{{ $name | snakecase | upper }}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
