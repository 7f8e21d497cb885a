import { readFileSync } from 'node:fs'
import { getHeapStatistics } from 'node:v8'
import type { SocketMode } from './listen-socket.ts'
import {
  type BootConfiguration,
  PROTOCOL_VERSION,
  type ProviderEntry,
} from './protocol/enclave-api.ts'
import { BUILT_IN_PROVIDERS } from './providers/built-in-table.ts'
import { PROVIDERS_MAX, parseOrigin, parseProviderTable } from './providers/parse-table.ts'
import { bundledCas, parseCas, type TrustedCas } from './providers/trusted-cas.ts'

/**
 * All settings of an enclave process. Each field names its variable. An empty variable counts as
 * unset. Relying parties must know some settings (providers, CAs, chain, contract). Only these are
 * in the boot configuration, whose digest is in the attestation document.
 */
export type EnclaveConfig = {
  /**
   * NODE_ENV: `production` refuses all simulated parts and plain-http providers. Default:
   * development.
   */
  readonly isProduction: boolean
  /**
   * ENCLAVE_SOCKET: path of the Unix socket to listen on, at most 107 bytes (the kernel's limit).
   * Required.
   */
  readonly socketPath: string
  /**
   * ENCLAVE_SOCKET_MODE: who may open the socket. `600`: only this user. `660`: also the group of
   * the socket's file. An image needs `660`, because its bridges run as another user. The setgid
   * bit of the folder gives the socket the group of the bridges. Default: 600.
   */
  readonly socketMode: SocketMode
  /**
   * NSM: `device` (/dev/nsm of a Nitro enclave) or `software` (proves nothing; for development).
   * Default: software, since a developer's machine has no device. In production it must be set to
   * `device`, so no enclave gets `software` by omission.
   */
  readonly nsm: 'device' | 'software'
  /**
   * NSM_SOCKET: Unix socket that a software NSM listens on (src/local/nsm). Required with
   * NSM=software; null with a device. Not in production.
   */
  readonly nsmSocket: string | null
  /**
   * CHAIN_ID: the EVM chain that tree heads are signed for, 1 to 2^53-1. Required: a guess would be
   * signed.
   */
  readonly chainId: number
  /**
   * CONTRACT_ADDRESS: the anchor contract on that chain, 0x and 40 hex digits; kept lower-case.
   * Required, like CHAIN_ID.
   */
  readonly contract: string
  /**
   * PROVIDERS_FILE: JSON array of ProviderEntry that replaces the built-in table. Default: the
   * built-in table. DEMO_PROVIDER_ORIGIN: adds an entry for `demo/*` at this loopback origin,
   * before all others. DEMO_TEE_ORIGIN (https): adds an entry for the models of a simulated TEE,
   * before the entry for `demo/*`. Not in production.
   */
  readonly providers: readonly ProviderEntry[]
  /**
   * PROVIDER_CA_FILE: PEM bundle that provider TLS is verified against. Default: the bundle in
   * Node.js.
   */
  readonly cas: TrustedCas
  readonly limits: Limits
  /**
   * ATTESTATION_RENEW_MS: age at which the attestation document is renewed, milliseconds. Default
   * 3600000 (1 h): a leaf certificate lives 3 h, so renewal may fail for two hours before calls are
   * refused.
   */
  readonly attestationRenewMs: number
  /**
   * SHUTDOWN_GRACE_MS: after SIGTERM, how long the enclave waits for running calls and for the
   * gateway to fetch sealed completions, milliseconds. Default 30000: what orchestrators commonly
   * give before SIGKILL.
   */
  readonly shutdownGraceMs: number
}

export type Limits = {
  /**
   * CONNECT_TIMEOUT_MS: DNS, TCP and TLS to a provider. Default 10000: several times a slow
   * handshake.
   */
  readonly connectTimeoutMs: number
  /**
   * FIRST_BYTE_TIMEOUT_MS: from the request, or from white space or a comment, to the first data of
   * the answer. Default 600000 (10 min): reasoning models think that long before a
   * non-streamed answer, and the common SDKs themselves give up after 10 min.
   */
  readonly firstByteTimeoutMs: number
  /**
   * IDLE_TIMEOUT_MS: between bytes of an answer that has begun. Default 300000 (5 min): how long
   * agents themselves wait.
   */
  readonly idleTimeoutMs: number
  /** ANSWER_TIMEOUT_MS: a whole answer. Default 3600000 (1 h): ends an endless, slow answer. */
  readonly answerTimeoutMs: number
  /**
   * DRAIN_TIMEOUT_MS: a gateway that stops reading for this long counts as gone. Default 60000.
   */
  readonly drainTimeoutMs: number
  /**
   * ANSWER_BYTES_MAX: body of one answer, as received. Default 25165824 (24 MiB): a stream of 64k
   * tokens, each in a chunk of 300 bytes, is 19 MiB.
   */
  readonly answerBytesMax: number
  /**
   * PENDING_BYTES_MAX: memory of completions that the gateway has not acknowledged and of all
   * running calls, as estimated (log/weigh-json.ts). At the limit, new calls are refused, and a
   * running call that needs more memory ends (`answer_too_large`). Default: half of the heap's
   * limit, which the image derives from the enclave's memory. The other half is for garbage, for
   * the texts of a pull, and for the rest of the process.
   */
  readonly pendingBytesMax: number
  /**
   * Maximum number of completion calls at the same time, in addition to PENDING_BYTES_MAX. A call
   * takes two file descriptors. A fifth of the descriptors is kept for everything else.
   */
  readonly callsMax: number
}

/**
 * The configuration is wrong. `faults` has one sentence per fault, for the operator who set the
 * variables.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly faults: readonly string[]

  constructor(faults: readonly string[]) {
    super(faults.join('\n'))
    this.faults = faults
  }
}

/**
 * Reads the configuration from the variables and their files. `heapBytesMax` and `descriptorsMax`
 * are this process's limits. Throws ConfigError with all faults.
 */
export function readConfig(
  environment: Readonly<Record<string, string | undefined>> = process.env,
  readFile: (path: string) => Uint8Array = readFileSync,
  heapBytesMax: number = getHeapStatistics().heap_size_limit,
  descriptorsMax: number = readDescriptorsMax(),
): EnclaveConfig {
  const variables = new Variables(environment, readFile)
  const isProduction = environment.NODE_ENV === 'production'
  const config: EnclaveConfig = {
    isProduction,
    socketPath: variables.required('ENCLAVE_SOCKET', parseSocketPath, ''),
    socketMode: variables.read('ENCLAVE_SOCKET_MODE', parseSocketMode, 0o600),
    nsm: variables.read('NSM', parseNsm, 'software'),
    nsmSocket: variables.read('NSM_SOCKET', parseSocketPath, null),
    chainId: variables.required(
      'CHAIN_ID',
      (text) => parseInteger(text, 1, Number.MAX_SAFE_INTEGER),
      0,
    ),
    contract: variables.required('CONTRACT_ADDRESS', parseAddress, ''),
    providers: readProviders(variables),
    cas: variables.readFile('PROVIDER_CA_FILE', parseCas) ?? bundledCas(),
    limits: readLimits(variables, heapBytesMax, descriptorsMax),
    attestationRenewMs: variables.integer('ATTESTATION_RENEW_MS', 3_600_000, {
      min: 1_000,
      max: 9_000_000,
    }),
    shutdownGraceMs: variables.integer('SHUTDOWN_GRACE_MS', 30_000, { min: 0, max: HOUR_MS }),
  }
  const faults = [
    ...variables.faults,
    ...(isProduction ? productionFaults : developmentFaults)(config, environment),
  ]
  if (faults.length > 0) throw new ConfigError(faults)
  return config
}

const HOUR_MS = 3_600_000
const GIBIBYTE = 2 ** 30

/** Number of descriptors that this process may open. If unknown: the lowest limit of any system. */
function readDescriptorsMax(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? DESCRIPTORS_MIN)
  } catch {
    return DESCRIPTORS_MIN
  }
}

const DESCRIPTORS_MIN = 1_024
const CALLS_SHARE = 0.4

function readLimits(variables: Variables, heapBytesMax: number, descriptorsMax: number): Limits {
  const time = { min: 1, max: 24 * HOUR_MS }
  return {
    connectTimeoutMs: variables.integer('CONNECT_TIMEOUT_MS', 10_000, time),
    firstByteTimeoutMs: variables.integer('FIRST_BYTE_TIMEOUT_MS', 600_000, time),
    idleTimeoutMs: variables.integer('IDLE_TIMEOUT_MS', 300_000, time),
    answerTimeoutMs: variables.integer('ANSWER_TIMEOUT_MS', HOUR_MS, time),
    drainTimeoutMs: variables.integer('DRAIN_TIMEOUT_MS', 60_000, time),
    answerBytesMax: variables.integer('ANSWER_BYTES_MAX', 24 * 2 ** 20, {
      min: 1024,
      max: GIBIBYTE / 4,
    }),
    pendingBytesMax: variables.integer('PENDING_BYTES_MAX', Math.floor(heapBytesMax / 2), {
      min: 2 ** 20,
      max: 64 * GIBIBYTE,
    }),
    callsMax: Math.max(1, Math.floor(descriptorsMax * CALLS_SHARE)),
  }
}

function readProviders(variables: Variables): readonly ProviderEntry[] {
  const table = variables.readFile('PROVIDERS_FILE', parseProviderTable) ?? BUILT_IN_PROVIDERS
  const endpoints = { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } }
  const demos = DEMOS.flatMap(([variable, scheme, name, models]) => {
    const origin = variables.read(variable, (text) => parseDemoOrigin(text, scheme), null)
    return origin === null
      ? []
      : [{ name, origin, path: '/v1/chat/completions', models, endpoints }]
  })
  const isTaken = table.some(({ name }) => demos.some((demo) => demo.name === name))
  if (isTaken || demos.length + table.length > PROVIDERS_MAX)
    variables.faults.push('PROVIDERS_FILE: is full, or has an entry called as a demonstration')
  return [...demos, ...table]
}

const DEMOS = [
  ['DEMO_TEE_ORIGIN', 'https:', 'demo-attested', ['demo/sealed', 'demo/unsealed']],
  ['DEMO_PROVIDER_ORIGIN', 'http:', 'demo', ['demo/*']],
] as const

function developmentFaults(
  { nsm, nsmSocket }: EnclaveConfig,
  { NSM, NSM_SOCKET }: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  if (nsm === 'device' && nsmSocket !== null)
    return ['NSM_SOCKET: expected with NSM=software alone: a device is no socket']
  // An unknown kind of NSM, or a path that is too long, is already reported.
  return (NSM || 'software') === 'software' && !NSM_SOCKET
    ? ['NSM_SOCKET: required with NSM=software']
    : []
}

function productionFaults(
  config: EnclaveConfig,
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  const faults: string[] = []
  if (config.nsm !== 'device') faults.push('NSM: expected device in production')
  if (environment.NSM_SOCKET) faults.push('NSM_SOCKET: a software NSM has no place in production')
  const demos = DEMOS.filter(([variable]) => environment[variable])
  for (const [variable] of demos) faults.push(`${variable}: no demonstration in production`)
  if (demos.length === 0 && config.providers.some(({ origin }) => !origin.startsWith('https:')))
    faults.push('PROVIDERS_FILE: expected https origins alone in production')
  return faults
}

/** Reads variables one by one, and collects their faults. */
class Variables {
  readonly faults: string[] = []
  private readonly environment: Readonly<Record<string, string | undefined>>
  private readonly openFile: (path: string) => Uint8Array

  constructor(
    environment: Readonly<Record<string, string | undefined>>,
    openFile: (path: string) => Uint8Array,
  ) {
    this.environment = environment
    this.openFile = openFile
  }

  read<Value, Fallback>(
    name: string,
    parse: (text: string) => Value,
    fallback: Fallback,
  ): Value | Fallback {
    const text = this.environment[name]
    if (text === undefined || text === '') return fallback
    try {
      return parse(text)
    } catch (error) {
      this.faults.push(`${name}: ${error instanceof Error ? error.message : 'unreadable'}`)
      return fallback
    }
  }

  /** `standIn` is never used as a setting: readConfig throws for the recorded fault. */
  required<Value>(name: string, parse: (text: string) => Value, standIn: Value): Value {
    if (!this.environment[name]) this.faults.push(`${name}: required`)
    return this.read(name, parse, standIn)
  }

  integer(
    name: string,
    fallback: number,
    range: { readonly min: number; readonly max: number },
  ): number {
    return this.read(name, (text) => parseInteger(text, range.min, range.max), fallback)
  }

  readFile<Value>(name: string, parse: (bytes: Uint8Array) => Value): Value | null {
    return this.read(name, (path) => parse(this.openFile(path)), null)
  }
}

function parseInteger(text: string, min: number, max: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (!(value >= min && value <= max))
    throw new Error(`expected a whole number from ${min} to ${max}`)
  return value
}

function parseSocketPath(text: string): string {
  if (Buffer.byteLength(text) > 107) throw new Error('expected a path of at most 107 bytes')
  return text
}

function parseSocketMode(text: string): SocketMode {
  if (text !== '600' && text !== '660') throw new Error('expected 600 or 660')
  return text === '600' ? 0o600 : 0o660
}

function parseNsm(text: string): 'device' | 'software' {
  if (text !== 'device' && text !== 'software') throw new Error('expected device or software')
  return text
}

function parseAddress(text: string): string {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) throw new Error('expected 0x and 40 hex digits')
  return text.toLowerCase()
}

/**
 * The host must be a loopback host, because parseOrigin accepts plain http only for loopback hosts.
 */
function parseDemoOrigin(text: string, scheme: string): string {
  if (!text.startsWith(scheme)) throw new Error(`expected an ${scheme} origin on a loopback host`)
  parseOrigin(text.replace(scheme, 'http:'))
  return text
}

/**
 * The part of the configuration that relying parties must know. The attestation document contains
 * its digest.
 */
export function bootConfigurationOf(
  config: Pick<EnclaveConfig, 'providers' | 'cas' | 'chainId' | 'contract'>,
): BootConfiguration {
  return {
    protocol_version: PROTOCOL_VERSION,
    providers: config.providers,
    ca_sha256: config.cas.sha256,
    chain_id: config.chainId,
    contract: config.contract,
  }
}
