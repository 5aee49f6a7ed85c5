{{/* Parts that every Pod has. Arguments: root, values (of the component). */}}
{{- define "distrl.podSpec" -}}
serviceAccountName: {{ include "distrl.fullname" .root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "distrl.placement" . }}
{{- end -}}

{{/* Placement; a Pod with GPUs tolerates the taint that keeps others off their nodes. Arguments: values. */}}
{{- define "distrl.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .values.tolerations | default list }}
{{- if .values.gpus }}
{{- $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "distrl.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{/* resources of a component with its GPUs. Arguments: values. */}}
{{- define "distrl.resources" -}}
{{- $resources := deepCopy .values.resources }}
{{- if .values.gpus }}
{{- $gpus := dict "nvidia.com/gpu" (printf "%d" (int .values.gpus)) }}
{{- $resources = mustMergeOverwrite $resources (dict "limits" $gpus) }}
{{- end }}
{{- toYaml $resources }}
{{- end -}}

{{/* Variables of every container of distrl. Arguments: user (of Redis, if it is needed), key (whether the run's key is needed). */}}
{{- define "distrl.env" -}}
- name: HOME
  value: /tmp
- name: PYTHONUNBUFFERED
  value: "1"
{{- if .user }}
- name: DISTRL_REDIS_PASSWORD_FILE
  value: /etc/distrl/secrets/redis-{{ .user }}-password
{{- end }}
{{- if .key }}
- name: DISTRL_RUN_KEY_FILE
  value: /etc/distrl/secrets/run-key
{{- end }}
{{- end -}}

{{/* Volume of the keys of the Secret that a Pod needs, and no other ones. Arguments: root, keys. */}}
{{- define "distrl.secretVolume" -}}
- name: secrets
  secret:
    secretName: {{ include "distrl.secretName" .root | quote }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end -}}

{{/* Volume with the authority of Redis' certificates, if it has TLS. */}}
{{- define "distrl.caVolume" -}}
{{- with include "distrl.caSecretName" . }}
- name: redis-ca
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}

{{- define "distrl.caMount" -}}
{{- if include "distrl.caSecretName" . }}
- name: redis-ca
  mountPath: /etc/distrl/redis-ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "distrl.caSecretName" -}}
{{- if eq .Values.redis.mode "own" -}}
{{- if .Values.redis.tls.enabled -}}{{ .Values.redis.tls.secretName }}{{- end -}}
{{- else -}}
{{- .Values.redis.external.caSecretName -}}
{{- end -}}
{{- end -}}

{{/* URL of Redis without options. Arguments: root, user (learner, actor or operator). */}}
{{- define "distrl.redisUrl" -}}
{{- $redis := .root.Values.redis -}}
{{- if eq $redis.mode "own" -}}
{{- printf "%s://distrl-default-%s@%s-redis:6379" (ternary "rediss" "redis" $redis.tls.enabled) .user (include "distrl.fullname" .root) -}}
{{- else -}}
{{- $urls := dict "learner" $redis.external.url "actor" $redis.external.actorUrl "operator" $redis.external.dashboardUrl -}}
{{- get $urls .user | default $redis.external.url -}}
{{- end -}}
{{- end -}}

{{/* The same with the file of the authority, for commands without a configuration. */}}
{{- define "distrl.redisUrlWithFiles" -}}
{{- $url := include "distrl.redisUrl" . -}}
{{- $url -}}
{{- if include "distrl.caSecretName" .root -}}
{{- ternary "&" "?" (contains "?" $url) }}ca_file=/etc/distrl/redis-ca/ca.crt
{{- end -}}
{{- end -}}

{{/* /tmp and /dev/shm. Arguments: tmp, shm (sizes). */}}
{{- define "distrl.scratchVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ .tmp }}}
{{- with .shm }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ . }}}
{{- end }}
{{- end -}}

{{- define "distrl.runsVolume" -}}
- name: runs
  {{- if not .Values.persistence.enabled }}
  emptyDir: {}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (printf "%s-runs" (include "distrl.fullname" .)) | quote }}
  {{- end }}
{{- end -}}

{{/* Arguments of `distrl train`, one a line. */}}
{{- define "distrl.trainArguments" -}}
{{- $id := include "distrl.runId" . -}}
{{- $arguments := list "train" "/config/job.yaml" "--run-dir" (printf "/runs/%s" $id) "--run-id" $id "--resume" "auto" "--dated" -}}
{{- with .Values.run.preset -}}{{- $arguments = concat $arguments (list "--preset" .) -}}{{- end -}}
{{- if eq .Values.mode "pods" -}}{{- $arguments = append $arguments "--no-actors" -}}{{- end -}}
{{- concat $arguments .Values.run.args | toYaml -}}
{{- end -}}
