/**
 * The servers from NATS_URL. Login and TLS are separate, because the NATS client cannot read them
 * from an address.
 */
type ServerAddresses = {
  /** `host:port`, without secrets. */
  readonly servers: readonly string[]
  /** One login for all servers. Null if they need no login. */
  readonly login:
    | { readonly user: string; readonly pass: string }
    | { readonly token: string }
    | null
  /** Servers without TLS are refused. */
  readonly needsTls: boolean
}

const DEFAULT_PORT = 4222

/** The addresses must have no faults. */
export function readServerAddresses(addresses: readonly string[]): ServerAddresses {
  const urls = addresses.map((address) => new URL(address))
  return {
    servers: urls.map(({ hostname, port }) => `${hostname}:${port || DEFAULT_PORT}`),
    login: urls.map(loginOf).find((login) => login !== null) ?? null,
    needsTls: urls.some(({ protocol }) => protocol === 'tls:'),
  }
}

function loginOf({ username, password }: URL): ServerAddresses['login'] {
  if (username === '') return null
  const user = decodeURIComponent(username)
  return password === '' ? { token: user } : { user, pass: decodeURIComponent(password) }
}

/** Returns faults. Their texts contain no address, because an address may contain a password. */
export function serverAddressFaults(addresses: readonly string[]): readonly string[] {
  if (!addresses.every(isAddress))
    return ['expected addresses that begin with nats: or tls:, without a path']
  const urls = addresses.map((address) => new URL(address))
  const isOne = (values: readonly string[]) => new Set(values).size <= 1
  return [
    ...(isOne(urls.map(({ protocol }) => protocol))
      ? []
      : ['expected either nats: or tls: for all servers']),
    ...(isOne(
      urls
        .map(loginOf)
        .filter((login) => login !== null)
        .map((login) => JSON.stringify(login)),
    )
      ? []
      : ['expected the same user, or token, for all servers']),
  ]
}

function isAddress(address: string): boolean {
  if (!URL.canParse(address)) return false
  const { protocol, hostname, pathname, search, hash, username, password } = new URL(address)
  const isBare = ['', '/'].includes(pathname) && search + hash === ''
  const hasLogin = password === '' || username !== ''
  return (
    ['nats:', 'tls:'].includes(protocol) &&
    hostname !== '' &&
    isBare &&
    hasLogin &&
    canDecode([username, password])
  )
}

function canDecode(texts: readonly string[]): boolean {
  try {
    for (const text of texts) decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}
