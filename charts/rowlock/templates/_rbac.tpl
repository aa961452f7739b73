{{- /* What docs/how-to/run-the-operator.md names, and no more. */}}
{{- define "rowlock.operatorRules" -}}
- apiGroups: [rowlock.dev]
  resources: [agentruns, agents, workerpools, agentrunapprovals, agentrunbatches]
  verbs: [get, list, watch]
- apiGroups: [rowlock.dev]
  resources: [workerpools]
  verbs: [patch]
- apiGroups: [rowlock.dev]
  resources: [agentruns]
  verbs: [delete, patch]
- apiGroups: [rowlock.dev]
  resources: [agentruns/status, agents/status, workerpools/status, agentrunapprovals/status, agentrunbatches/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, create, patch, delete]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
- apiGroups: [rowlock.dev]
  resources: [agentrunapprovals]
  verbs: [create]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
# Batches: AgentRuns of their items, and their own end after ttlSecondsAfterFinished.
- apiGroups: [rowlock.dev]
  resources: [agentruns]
  verbs: [create]
- apiGroups: [rowlock.dev]
  resources: [agentrunbatches]
  verbs: [delete]
{{- end }}

{{- define "rowlock.operatorSubjects" -}}
- kind: ServiceAccount
  name: {{ include "rowlock.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* Names of cluster-wide objects carry the namespace, or two releases would share them. */}}
{{- define "rowlock.clusterName" -}}
{{- .Release.Namespace }}-{{ include "rowlock.fullname" . -}}
{{- end }}
