import type { IncomingMessage } from 'node:http'
import { BlockList, isIP, isIPv4 } from 'node:net'

/** Maximum number of addresses that are read from a forwarding header, the nearest first. */
const HOPS_MAX = 16

/**
 * Returns the address of the client that sent a request. Starts with the connection's address.
 * While the address belongs to a proxy in `trusted` (addresses and CIDRs), continues with the next
 * address in `x-forwarded-for`, from right to left. Any caller can write the addresses further
 * left. Null if the connection has no address, as on a Unix socket.
 */
export function createClientAddresses(
  trusted: readonly string[],
): (request: IncomingMessage) => string | null {
  const proxies = new BlockList()
  for (const range of trusted) addRange(proxies, range)
  const isProxy = (address: string) => proxies.check(address, isIPv4(address) ? 'ipv4' : 'ipv6')
  return ({ socket, headers }) => {
    let client = plainAddress(socket.remoteAddress ?? '')
    if (client === null || trusted.length === 0 || !isProxy(client)) return client
    // Node joins several headers of this name with a comma, in their order.
    const hops = String(headers['x-forwarded-for'] ?? '')
      .split(',')
      .slice(-HOPS_MAX)
    for (const hop of hops.toReversed()) {
      const address = plainAddress(hop.trim())
      // A proxy that knows the client's address writes a valid address. Any other text ends the
      // search.
      if (address === null) break
      client = address
      if (!isProxy(address)) break
    }
    return client
  }
}

/**
 * Returns the group of callers that share limits: the address, or the /64 of an IPv6 address,
 * because one holder has a whole /64. Null gives `nowhere`.
 */
export function clientGroupOf(address: string | null): string {
  if (address === null) return 'nowhere'
  if (isIPv4(address)) return address
  const [head = '', tail] = address.split('::')
  const groups = head === '' ? [] : head.split(':')
  const missing =
    tail === undefined ? 0 : 8 - groups.length - tail.split(':').filter(Boolean).length
  const whole = [...groups, ...Array(Math.max(0, missing)).fill('0'), ...(tail?.split(':') ?? [])]
  return `${whole
    .slice(0, 4)
    .map((group) => Number.parseInt(group || '0', 16).toString(16))
    .join(':')}::/64`
}

function addRange(proxies: BlockList, range: string): void {
  const [address = '', prefix] = range.split('/')
  const family = isIPv4(address) ? 'ipv4' : 'ipv6'
  if (prefix === undefined) proxies.addAddress(address, family)
  else proxies.addSubnet(address, Number(prefix), family)
}

/**
 * Removes port, brackets and zone, and turns an IPv4 address in IPv6 form into IPv4. Null for any
 * other text.
 */
function plainAddress(text: string): string | null {
  const [, bracketed, withPort] = /^\[([^\]]*)\](?::\d+)?$|^([\d.]+):\d+$/.exec(text) ?? []
  const address = (bracketed ?? withPort ?? text).replace(/%.*$/s, '').toLowerCase()
  if (isIP(address) === 0) return null
  return /^::ffff:([\d.]+)$/.exec(address)?.[1] ?? address
}
