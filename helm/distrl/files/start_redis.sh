# Give each user of distrl its password, as a hash, and start the server. Without a login, PING alone is allowed: the probes' command.
set -eu
umask 077
{
  echo 'user default reset on nopass +ping'
  while read -r user name rules; do
    password=/etc/distrl/secrets/redis-${name##*-}-password
    if [ "$user" = user ] && [ -f "$password" ]; then
      hash=$(tr -d '\n' < "$password" | sha256sum | cut -d ' ' -f 1)
      printf 'user %s %s #%s\n' "$name" "$rules" "$hash"
    fi
  done < /etc/redis/users.acl
} > /tmp/users.acl
exec valkey-server /etc/redis/redis.conf
