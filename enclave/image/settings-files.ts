import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import type { ProviderEntry } from '../protocol/messages.ts'
import { type FileTree, type TreeEntry, textFile } from './file-tree.ts'

/** What of an image its operator decides. All of it is measured. */
export type ImageSettings = {
  readonly chainId: number
  /** 0x and 40 hex digits, lower case. */
  readonly contract: string
  /**
   * Whether it is a development image: software NSM, a network in place of vsock, the demonstration provider. It differs from
   * a production image in `enclave.env` alone, and so in its measurements.
   */
  readonly isDevelopment: boolean
  readonly providers: readonly ProviderEntry[]
  /** PEM bundle that provider TLS is verified against. */
  readonly cas: Uint8Array
}

/** The unprivileged user that the verifier runs as. */
export const ENCLAVE_USER_ID = 10_001

/** The one that the bridges run as, which has no access to the security module. */
const BRIDGE_USER_ID = 10_002

/** Where a development image's demonstration provider is, inside the enclave; a bridge leads from there to the host. */
export const DEMO_PROVIDER_ORIGIN = 'http://127.0.0.1:8090'

/** Where a development image's bridge finds the software NSM, on the one host that the guest reaches. */
export const NSM_PORT = 8089

/** A way out of the enclave: a loopback address that a provider's name leads to, and the host's vsock port behind it. */
export type Bridge = {
  readonly host: string
  readonly address: string
  readonly port: number
  /** 8000 and the number of the provider's host; vsock-proxy listens there, for this host alone. */
  readonly vsockPort: number
}

/** The vsock port that the gateway reaches the enclave's socket at. */
export const GATEWAY_VSOCK_PORT = 5000

/**
 * Gives the bridges for the providers of a table, one for each host and port, in the order of the table: the first has
 * 127.0.0.2 (127.0.0.1 is localhost) and port 8002, the next 127.0.0.3 and 8003. Providers on a loopback host need none.
 */
export function listBridges(providers: readonly ProviderEntry[]): readonly Bridge[] {
  const targets = new Set(
    providers.map(({ origin }) => new URL(origin)).flatMap((url) => (isOutside(url) ? [url.host] : [])),
  )
  const hosts = [...new Set([...targets].map((target) => target.split(':')[0] ?? ''))]
  return [...targets].map((target, index) => {
    const [host = '', port = '443'] = target.split(':')
    const address = `127.0.0.${hosts.indexOf(host) + FIRST_BRIDGE}`
    return { host, address, port: Number(port), vsockPort: VSOCK_PORT_BASE + FIRST_BRIDGE + index }
  })
}

/** Gives the files below `/etc` that hold an image's settings, by their paths in the root file system. */
export function writeSettings(settings: ImageSettings): FileTree {
  const bridges = listBridges(settings.providers)
  const table = settings.providers.map(({ name, origin, path, models }) => ({ name, origin, path, models }))
  const names = new Map(bridges.map(({ host, address }) => [host, address]))
  const files: readonly (readonly [string, TreeEntry])[] = [
    ['etc/affidavit/enclave.env', textFile(writeVariables(settings))],
    ['etc/affidavit/providers.json', textFile(`${canonicalizeJson(table)}\n`)],
    ['etc/affidavit/provider-cas.pem', { kind: 'file', mode: 0o644, data: settings.cas }],
    ['etc/affidavit/bridges', textFile(bridges.map(writeBridge).join(''))],
    [
      'etc/hosts',
      textFile(writeLines(['127.0.0.1 localhost', ...[...names].map(([host, at]) => `${at} ${host}`)])),
    ],
    ['etc/nsswitch.conf', textFile('hosts: files\n')],
    ['etc/passwd', textFile(writeLines(USERS.map(([name, id]) => `${name}:x:${id}:${id}::/:/bin/false`)))],
    ['etc/group', textFile(writeLines(USERS.map(([name, id]) => `${name}:x:${id}:`)))],
  ]
  return new Map(files)
}

/**
 * What only a development image has: the demonstration provider, and a security module in software. That is outside of the
 * image as a hypervisor's is, and a bridge leads to it.
 */
const DEVELOPMENT_VARIABLES = [
  'NSM_SOCKET=/run/nsm/nsm.sock',
  `NSM_PORT=${NSM_PORT}`,
  `DEMO_PROVIDER_ORIGIN=${DEMO_PROVIDER_ORIGIN}`,
]

/** Names and ids, of users and of their groups. */
const USERS = [
  ['root', 0],
  ['enclave', ENCLAVE_USER_ID],
  ['bridge', BRIDGE_USER_ID],
] as const
const VSOCK_PORT_BASE = 8000
const FIRST_BRIDGE = 2

function writeVariables({ chainId, contract, isDevelopment }: ImageSettings): string {
  return writeLines([
    `NODE_ENV=${isDevelopment ? 'development' : 'production'}`,
    `NSM=${isDevelopment ? 'software' : 'device'}`,
    `BRIDGE=${isDevelopment ? 'tcp' : 'vsock'}`,
    `GATEWAY_PORT=${GATEWAY_VSOCK_PORT}`,
    `CHAIN_ID=${chainId}`,
    `CONTRACT_ADDRESS=${contract}`,
    'ENCLAVE_SOCKET=/run/affidavit/enclave.sock',
    'ENCLAVE_SOCKET_MODE=660',
    'PROVIDERS_FILE=/etc/affidavit/providers.json',
    'PROVIDER_CA_FILE=/etc/affidavit/provider-cas.pem',
    ...(isDevelopment ? DEVELOPMENT_VARIABLES : []),
  ])
}

/** Address, port, vsock port and host: what the init script starts a bridge with. */
function writeBridge({ address, port, vsockPort, host }: Bridge): string {
  return `${address} ${port} ${vsockPort} ${host}\n`
}

function writeLines(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('')
}

/** IPv6 literals and loopback hosts are no names that /etc/hosts could lead elsewhere. */
function isOutside({ hostname, protocol }: URL): boolean {
  return protocol === 'https:' && hostname !== 'localhost' && !/^\[|^\d+\.\d+\.\d+\.\d+$/.test(hostname)
}
