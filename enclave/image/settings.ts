import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json } from '#attestation/json/value.ts'
import { bootConfigurationOf, ConfigError, readConfig } from '../config.ts'
import type { ProviderEntry } from '../protocol/enclave-api.ts'
import { BUILT_IN_PROVIDERS } from '../providers/built-in-table.ts'
import { PROVIDERS_MAX, parseProviderTable } from '../providers/parse-table.ts'
import { parseCas } from '../providers/trusted-cas.ts'
import { BuildError, readInput } from './build-error.ts'
import { type FileTree, type TreeEntry, textFile } from './file-tree.ts'
import type { ImageOptions } from './options.ts'
import { runCommand } from './run-command.ts'

/**
 * Reads the settings from the options and their files, with the enclave's own checks. Throws
 * BuildError `options`.
 */
export async function readImageSettings(
  options: Pick<
    ImageOptions,
    'chainId' | 'contract' | 'isDevelopment' | 'limits' | 'providersFile' | 'caFile'
  >,
  { node, cache }: { readonly node: TreeEntry; readonly cache: string },
): Promise<ImageSettings> {
  const { chainId, contract, isDevelopment, limits, providersFile, caFile } = options
  const cas = caFile === null ? await readCarriedCas(node, cache) : await readInput(caFile)
  attempt(caFile ?? 'CAs of Node.js', () => parseCas(cas))
  const providers =
    providersFile === null
      ? BUILT_IN_PROVIDERS
      : attempt(providersFile, parseProviderTable.bind(null, await readInput(providersFile)))
  const fault = isDevelopment ? findDemoFault(providers) : findClearFault(providers)
  if (fault !== null) throw new BuildError('options', `${providersFile}: ${fault}`)
  checkReach(providers, providersFile)
  return { chainId, contract, isDevelopment, limits, providers, cas }
}

function findClearFault(providers: readonly ProviderEntry[]): string | null {
  const isClear = providers.some(({ origin }) => !origin.startsWith('https:'))
  return isClear ? 'expected https origins alone in a production image' : null
}

/** Returns a fault if a development image cannot add its own entry `demo`. */
function findDemoFault(providers: readonly ProviderEntry[]): string | null {
  const hasRoom = providers.length < PROVIDERS_MAX && providers.every(({ name }) => name !== 'demo')
  return hasRoom ? null : 'expected room for an entry called demo in a development image'
}

/**
 * Refuses IP addresses: the enclave has no network, and /etc/hosts can redirect only names to a
 * bridge.
 */
function checkReach(providers: readonly ProviderEntry[], file: string | null): void {
  const lost = providers.find(
    (provider) => provider.origin.startsWith('https:') && listBridges([provider]).length === 0,
  )
  if (lost !== undefined)
    throw new BuildError(
      'options',
      `${file}: expected the name of a host that a bridge can lead to, got ${lost.origin}`,
    )
}

/** Prints each certificate and a newline, in the form of the CAs in trusted-cas.ts. */
const PRINT_CAS =
  "process.stdout.write(require('node:tls').rootCertificates.map((certificate) => certificate + '\\n').join(''))"

/**
 * Reads the CAs of the image's own Node.js: the builder's Node.js can have other CAs. This Node.js
 * runs without environment variables, because they could change the result.
 */
async function readCarriedCas(node: TreeEntry, cache: string): Promise<Uint8Array> {
  if (node.kind !== 'file')
    throw new BuildError('package_incomplete', 'expected Node.js to be a file')
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'node-'))
  try {
    const file = join(folder, 'node')
    await writeFile(file, node.data, { mode: 0o755 })
    return new Uint8Array(await runCommand({ file, arguments: ['-e', PRINT_CAS], environment: {} }))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function attempt<Value>(file: string, parse: () => Value): Value {
  try {
    return parse()
  } catch (error) {
    throw new BuildError(
      'options',
      `${file}: ${error instanceof Error ? error.message : 'unreadable'}`,
    )
  }
}

/** The settings that the operator chose for an image. All of them are measured. */
export type ImageSettings = {
  readonly chainId: number
  /** 0x and 40 hex digits, lower case. */
  readonly contract: string
  /**
   * True for a development image: software NSM, a network instead of vsock, the demonstration
   * provider. A development image differs from a production image only in `enclave.env`, and so in
   * its measurements.
   */
  readonly isDevelopment: boolean
  readonly limits: ImageOptions['limits']
  readonly providers: readonly ProviderEntry[]
  /** PEM bundle for verifying provider TLS. */
  readonly cas: Uint8Array
}

/**
 * Address of the demonstration provider in a development image. A bridge leads from it to the host.
 */
export const DEMO_PROVIDER_ORIGIN = 'http://127.0.0.1:8090'

/**
 * Port of the software NSM, on the only host that the guest can reach. A bridge of a development
 * image leads to this port.
 */
export const NSM_PORT = 8089

/**
 * A bridge from the enclave to a provider. /etc/hosts maps the provider's name to a loopback
 * address. The bridge forwards connections from there to the host's vsock port.
 */
type Bridge = {
  readonly host: string
  readonly address: string
  readonly port: number
  /**
   * 8000 plus the bridge's number, from 2. vsock-proxy forwards each of these ports to one host and
   * port.
   */
  readonly vsockPort: number
}

/** The vsock port through which the gateway reaches the enclave's socket. */
export const GATEWAY_VSOCK_PORT = 5000

/**
 * Lists the bridges for a table's providers, one for each host and port, in the table's order.
 * Hosts get 127.0.0.2 (127.0.0.1 is localhost), 127.0.0.3, …, and bridges get the vsock ports 8002,
 * 8003, …. Providers on a loopback host need no bridge.
 */
export function listBridges(providers: readonly ProviderEntry[]): readonly Bridge[] {
  const targets = new Set(
    providers
      .map(({ origin }) => new URL(origin))
      .flatMap((url) => (isOutside(url) ? [url.host] : [])),
  )
  const hosts = [...new Set([...targets].map((target) => target.split(':')[0] ?? ''))]
  return [...targets].map((target, index) => {
    const [host = '', port = '443'] = target.split(':')
    const address = `127.0.0.${hosts.indexOf(host) + FIRST_BRIDGE}`
    return { host, address, port: Number(port), vsockPort: VSOCK_PORT_BASE + FIRST_BRIDGE + index }
  })
}

/** Writes an image's settings as files below `/etc`, by their paths in the root file system. */
export function writeSettings(settings: ImageSettings): FileTree {
  const bridges = listBridges(settings.providers)
  const names = new Map(bridges.map(({ host, address }) => [host, address]))
  const files: readonly (readonly [string, TreeEntry])[] = [
    ['etc/affidavit/enclave.env', textFile(writeVariables(settings))],
    [
      'etc/affidavit/providers.json',
      textFile(`${canonicalizeJson(settings.providers as unknown as Json)}\n`),
    ],
    ['etc/affidavit/provider-cas.pem', { kind: 'file', mode: 0o644, data: settings.cas }],
    ['etc/affidavit/bridges', textFile(bridges.map(writeBridge).join(''))],
    [
      'etc/hosts',
      textFile(
        writeLines(['127.0.0.1 localhost', ...[...names].map(([host, at]) => `${at} ${host}`)]),
      ),
    ],
    ['etc/nsswitch.conf', textFile('hosts: files\n')],
    [
      'etc/passwd',
      textFile(writeLines(USERS.map(([name, id]) => `${name}:x:${id}:${id}::/:/bin/false`))),
    ],
    ['etc/group', textFile(writeLines(USERS.map(([name, id]) => `${name}:x:${id}:`)))],
  ]
  return new Map(files)
}

/**
 * Variables only for development images: the demonstration provider, and a software security
 * module. A bridge leads to this module outside the image.
 */
const DEVELOPMENT_VARIABLES = [
  'NSM_SOCKET=/run/nsm/nsm.sock',
  `NSM_PORT=${NSM_PORT}`,
  `DEMO_PROVIDER_ORIGIN=${DEMO_PROVIDER_ORIGIN}`,
]

/** Names and ids of users. Each user's group has the same name and id. */
const USERS = [
  ['root', 0],
  ['enclave', 10_001],
  // Runs the bridges. This user has no access to the security module.
  ['bridge', 10_002],
] as const
const VSOCK_PORT_BASE = 8000
const FIRST_BRIDGE = 2

function writeVariables({ chainId, contract, isDevelopment, limits }: ImageSettings): string {
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
    ...Object.entries(limits).map(([name, value]) => `${name}=${value}`),
    ...(isDevelopment ? DEVELOPMENT_VARIABLES : []),
  ])
}

/** Writes a bridge for the init script: address, port, vsock port and host. */
function writeBridge({ address, port, vsockPort, host }: Bridge): string {
  return `${address} ${port} ${vsockPort} ${host}\n`
}

function writeLines(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('')
}

/**
 * Returns true if /etc/hosts must lead this name to a bridge. Loopback hosts need no bridge, and
 * /etc/hosts cannot redirect IP addresses.
 */
function isOutside({ hostname, protocol }: URL): boolean {
  return (
    protocol === 'https:' && hostname !== 'localhost' && !/^\[|^\d+\.\d+\.\d+\.\d+$/.test(hostname)
  )
}

/**
 * Returns the digest (64 hex digits) of the boot configuration of an enclave with these settings
 * files. The enclave's own code reads the files, so a release can state the configuration before
 * any enclave has run. Throws BuildError `options`.
 */
export function digestSettings(settings: FileTree): string {
  const variables = Object.fromEntries(
    textOf(settings, 'etc/affidavit/enclave.env')
      .split('\n')
      .filter((line) => line !== '')
      .map((line): [string, string] => [
        line.slice(0, line.indexOf('=')),
        line.slice(line.indexOf('=') + 1),
      ]),
  )
  try {
    const config = readConfig(variables, (path) => bytesOf(settings, path.replace(/^\//, '')))
    return encodeHex(digestBootConfiguration(bootConfigurationOf(config)))
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    throw new BuildError(
      'options',
      `the settings are none that the enclave takes: ${error.faults.join('; ')}`,
    )
  }
}

function textOf(settings: FileTree, path: string): string {
  return new TextDecoder().decode(bytesOf(settings, path))
}

function bytesOf(settings: FileTree, path: string): Uint8Array {
  const entry = settings.get(path)
  if (entry?.kind !== 'file')
    throw new BuildError('options', `expected the settings to have ${path}`)
  return entry.data
}
