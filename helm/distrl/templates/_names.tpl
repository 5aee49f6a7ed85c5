{{/* Names and labels. A name has 30 characters at most, as KubeRay allows 47 for a RayJob. */}}
{{- define "distrl.fullname" -}}
{{- $part := .Values.nameOverride | default .Chart.Name -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $part) (contains $part .Release.Name) -}}
{{- $name := .Values.fullnameOverride | default $whole | trunc 30 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s cannot be the name of a Service: set fullnameOverride to small letters, digits and '-', with a letter first" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "distrl.runId" -}}
{{- .Values.run.id | default .Release.Name -}}
{{- end -}}

{{- define "distrl.secretName" -}}
{{- .Values.secret.existing | default (include "distrl.fullname" .) -}}
{{- end -}}

{{/* Labels by which objects of a component are found; they never change. Arguments: root, component. */}}
{{- define "distrl.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "distrl.labels" -}}
{{ include "distrl.selector" . }}
app.kubernetes.io/name: distrl
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* metadata of a Pod's template. Arguments: root, component, values. */}}
{{- define "distrl.podMetadata" -}}
labels:
  {{- include "distrl.selector" . | nindent 2 }}
  {{- if not (hasPrefix "ray-" .component) }}{{/* KubeRay sets it, and finds the head of a RayJob by it */}}
  app.kubernetes.io/name: distrl
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* GPUs of the learner. */}}
{{- define "distrl.learnerGpus" -}}
{{- ternary .Values.ray.learner.gpus .Values.learner.gpus (eq .Values.mode "ray") -}}
{{- end -}}

{{/* Image of a role; without a repository, that of the learner. Arguments: root, image. */}}
{{- define "distrl.image" -}}
{{- $registry := .root.Values.images.registry -}}
{{- if $registry }}{{ $registry }}/{{ end -}}
{{- $own := ternary "distrl/learner" "distrl/learner-gpu" (eq (include "distrl.learnerGpus" .root) "0") -}}
{{- $image := merge (dict "repository" (.image.repository | default $own)) .image -}}
{{- include "distrl.imageReference" (dict "image" $image "tag" .root.Chart.AppVersion) -}}
{{- end -}}

{{- define "distrl.imageReference" -}}
{{- .image.repository -}}
{{- if .image.digest -}}@{{ .image.digest }}{{- else -}}:{{ .image.tag | default .tag }}{{- end -}}
{{- end -}}
