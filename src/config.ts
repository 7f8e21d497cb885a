import { resolve } from 'node:path'
import { z } from 'zod'
import type { BundleSource } from '../attestation/evidence/bundle-source.ts'
import { BUS_FIELDS, type BusConfig, busFaults, busOf } from './bus/settings.ts'
import {
  anchoringOf,
  CHAIN_FIELDS,
  type ChainConfig,
  chainFaults,
  REMOTE_CHAIN,
} from './chain/settings.ts'
import {
  ENCLAVE_FIELDS,
  type EnclaveSource,
  enclaveOf,
  type ReleasesConfig,
  releaseFaults,
  releasesOf,
} from './enclaves/settings.ts'
import { type TraceConfig, traceFields, tracesOf } from './observability/trace-settings.ts'
import { descriptorsMax } from './runtime/descriptors.ts'
import {
  addressRanges,
  confidential,
  flag,
  form,
  integer,
  listField,
  oneOf,
  origins,
  port,
  secret,
  textField,
  url,
} from './runtime/fields.ts'
import { memoryLimitBytes } from './runtime/memory.ts'
import { type Environment, pickVariables, readSettings } from './runtime/read-settings.ts'
import type { ContentKeySource } from './storage/content-keys.ts'
import {
  CONTENT_KEY_FIELDS,
  contentFaults,
  contentKeysOf,
  RETENTION_DAYS_MAX,
} from './storage/settings.ts'
import {
  UPSTREAM_FIELDS,
  type UpstreamConfig,
  upstreamFaults,
  upstreamOf,
} from './upstream/settings.ts'
import { SOURCE_FIELDS, sourceOf } from './verified/settings.ts'

const MINUTE_MS = 60_000

/**
 * Every variable of the gateway's process. Empty counts as unset. Those of the enclave:
 * enclave/config.ts.
 */
const schema = z.object({
  /**
   * `production` refuses to start with anything embedded, simulated or for demonstration. Default:
   * development. Other words are refused, so that no misspelt production starts with simulated
   * parts.
   */
  NODE_ENV: oneOf(['development', 'test', 'production']).default('development'),
  /**
   * `true`: a staging system, for NODE_ENV=production alone. All that production demands is
   * demanded, but enclaves have to have a simulated security module, whose root nothing trusts; one
   * of AWS's is refused. Said in the log, at `GET /` and `/readyz`, in a header of every answer and
   * in the metrics (deploy/STAGING.md). Default false.
   */
  AFFIDAVIT_STAGING: flag.default(false),
  /** Address to listen on. Default 127.0.0.1: another address opens it to other machines. */
  HOST: textField.default('127.0.0.1'),
  /** TCP port to listen on. Default 3000; 0 takes any free one, which is printed. */
  PORT: port.default(3000),
  /**
   * TCP port of `GET /metrics` for Prometheus; 0 takes any free one, which is logged. Default: none
   * is opened, since it asks for no key.
   */
  METRICS_PORT: port.optional(),
  /**
   * Address that it listens on. Default 127.0.0.1: it is for a collector beside this process, never
   * for the public.
   */
  METRICS_HOST: textField.default('127.0.0.1'),
  /**
   * Folder for what is kept between starts: embedded database, local chain, development key.
   * Default ./.affidavit.
   */
  DATA_DIR: textField.default('.affidavit'),
  /**
   * Least severe log lines that are written. Default info: one line per request. `silent` writes
   * none.
   */
  LOG_LEVEL: oneOf(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  ...traceFields,

  /**
   * Postgres to use, `postgres://user:password@host:port/name`. Default: an embedded PGlite in
   * DATA_DIR.
   */
  DATABASE_URL: confidential(url(['postgres', 'postgresql'])).optional(),

  ...CONTENT_KEY_FIELDS,
  /**
   * Days after which requests and answers are erased from stored completions, whose proofs stay; an
   * account's own value goes first (`affidavit accounts set-retention`). Default: they are kept.
   */
  RETENTION_DAYS: integer({ min: 1, max: RETENTION_DAYS_MAX }).optional(),

  ...BUS_FIELDS,

  ...CHAIN_FIELDS,

  /**
   * How often the enclave attests the state of its log over a recent block's hash, milliseconds.
   * Default 600000 (10 min): a completion is then between two such times, at 144 documents of 5 KB
   * a day at most. At least 1000.
   */
  HEAD_ATTESTATION_INTERVAL_MS: integer({ min: 1000, max: 24 * 60 * MINUTE_MS }).default(
    10 * MINUTE_MS,
  ),

  ...ENCLAVE_FIELDS,
  /**
   * Path of the Unix socket over which `affidavit enclaves` (and keys, accounts) speaks to this
   * process; who may enter its folder may do all that. Default: one in a private folder, named in
   * DATA_DIR; in production none, as there is no data folder.
   */
  CONTROL_SOCKET: form(/^\/.{1,106}$/, 'the absolute path of a socket').optional(),

  /**
   * The operator's credentials at the providers; a caller's Fine-Tune-Authorization goes first.
   * Default: none.
   */
  OPENAI_API_KEY: secret.optional(),
  ANTHROPIC_API_KEY: secret.optional(),
  GEMINI_API_KEY: secret.optional(),
  MISTRAL_API_KEY: secret.optional(),
  DEEPSEEK_API_KEY: secret.optional(),
  XAI_API_KEY: secret.optional(),
  GROQ_API_KEY: secret.optional(),
  TOGETHER_API_KEY: secret.optional(),
  OPENROUTER_API_KEY: secret.optional(),
  /** Another name for GEMINI_API_KEY, which goes first. */
  GOOGLE_API_KEY: secret.optional(),

  /**
   * Ids of models that `GET /v1/models` and `GET /v1/verified/models` list as providers' besides
   * those the enclave's provider table names in full, comma-separated. Default none: a table has
   * patterns (`gpt-*`), and providers are asked what they have under one (PROVIDER_MODELS_ASK).
   */
  PROVIDER_MODELS: listField({ itemsMax: 1_000, lengthMax: 512 }).default([]),
  /**
   * Whether the gateway asks each provider for which it has a credential which models it has, once
   * an hour, so that `GET /v1/verified/models` lists them. Default true. With false, models that
   * match a pattern are listed once they were used.
   */
  PROVIDER_MODELS_ASK: flag.default(true),

  /**
   * Fixes the API key that is made on first start, for scripts. Default: a random one, kept in
   * DATA_DIR/api-key.
   */
  DEV_API_KEY: confidential(
    form(/^[\x21-\x7e]{8,200}$/, '8 to 200 printable characters without blanks'),
  ).optional(),
  /**
   * Whether every account may read the completions, prompts and answers of all accounts, with
   * `filter=all` and by hash. Required in production, where true warns at each start. Default in
   * development: true, as the interface has it.
   */
  HISTORY_ALL: flag.default(true),
  /**
   * Whether anyone with a completion's hash gets its evidence without its content, at
   * `/v1/evidence/{hash}`, with no key: provider, models, times, outcome, hashes, place in the log.
   * Default true, for pages that show it. Who knows the hash can then try guesses of a request that
   * has no nonce.
   */
  PUBLIC_EVIDENCE: flag.default(true),
  /**
   * Origins whose web pages may call the API, comma-separated:
   * `https://app.example,http://localhost:5173`, or `*` for all. Default none: an API key does not
   * belong into a page, unless it is its user's own.
   */
  CORS_ORIGINS: origins({ itemsMax: 100 }).default([]),
  /**
   * Addresses and CIDRs of the reverse proxies in front, comma-separated: `10.0.0.0/8, ::1`. Of a
   * call that comes from one of them, the log line has the last client in its `x-forwarded-for`
   * that is not one of these proxies. Default: none, since any caller can send that header.
   */
  TRUSTED_PROXIES: addressRanges({ itemsMax: 100 }).default([]),
  /**
   * JSON file of the tiers of accounts and their limits; src/accounts/limits/README.md has its
   * form. Default: no limits for development; in production those of a common free tier (60
   * requests and 40,000 tokens a minute, 33,000 and 4,000,000 a day, for each kind of call), so
   * that no key that leaks spends the operator's money without a bound. Read again on SIGHUP.
   */
  RATE_LIMIT_TIERS_FILE: textField.optional(),
  /**
   * JSON file of what models cost, for budgets of money; src/accounts/README.md has its form.
   * Read again on SIGHUP. Default: none, and calls of who has such a budget are refused.
   */
  PRICES_FILE: textField.optional(),
  /**
   * Between two comments in a stream, busy or silent, milliseconds. Default 15000: below what
   * proxies cut off at.
   */
  KEEP_ALIVE_MS: integer({ min: 100, max: 10 * MINUTE_MS }).default(15_000),
  /**
   * Largest request body, bytes. Default 10485760 (10 MiB), as the interface has it. A larger one
   * lets plain calls be larger: the enclave takes 10 MiB in any case (REQUEST_BYTES_MAX).
   */
  BODY_BYTES_MAX: integer({ min: 1024, max: 64 * 1024 * 1024 }).default(10 * 1024 * 1024),
  /**
   * Memory that the bodies and answers of all calls together may take, bytes, as estimated: five
   * times what is held, and more for JSON of many small values. Calls beyond it are refused with
   * 503 `overloaded`; an eighth is kept for small ones. Default: a quarter of the memory that the
   * process may use (its control group's limit, else the machine's), 64 MiB at least.
   */
  MEMORY_ADMITTED_BYTES_MAX: integer({ min: 16 * 1024 * 1024, max: 2 ** 40 }).optional(),
  /**
   * Verified calls at once, open streams among them. Default: as many as that memory holds at 100
   * KiB each, and as two fifths of the file descriptors allow (a call takes two); in production 512
   * at most, since each connection to an enclave in an image is two processes of its bridges.
   */
  VERIFIED_CALLS_MAX: integer({ min: 1, max: 100_000 }).optional(),
  /**
   * How long a stop goes on serving before it closes the port, milliseconds; `/readyz` says not
   * ready meanwhile. Default 0, for development: behind a load balancer, more than it takes to
   * notice (docs/operating/stop-a-gateway.md).
   */
  DRAIN_DELAY_MS: integer({ min: 0, max: 10 * MINUTE_MS }).default(0),
  /**
   * How many processes serve, each a whole gateway, behind the one PORT: one uses one core. More
   * than one needs DATABASE_URL, ENCLAVE_URL and CHAIN_RPC_URL; NATS_URL too where nodes are to
   * serve all of them. Each has its own METRICS_PORT and CONTROL_SOCKET: the port counted up from
   * the first, the path with `.0`, `.1` and so on behind it. Default 1.
   */
  GATEWAY_PROCESSES: integer({ min: 1, max: 64 }).default(1),
  /**
   * How long a stop waits for running calls, milliseconds. Default 25000: orchestrators commonly
   * kill after 30 s.
   */
  SHUTDOWN_GRACE_MS: integer({ min: 0, max: 60 * MINUTE_MS }).default(25_000),
  ...UPSTREAM_FIELDS,
  ...SOURCE_FIELDS,
})

type Settings = z.output<typeof schema>

/** Settings of the gateway's process, as values. The variables are described in this file. */
export type GatewayConfig = {
  readonly isProduction: boolean
  /** Production with a simulated security module, which says so everywhere. */
  readonly isStaging: boolean
  readonly host: string
  readonly port: number
  /** Where traces go; null for nowhere. */
  readonly traces: TraceConfig | null
  /** Variables for the agent of the demonstration, which is traced as the gateway is. */
  readonly agentVariables: Readonly<Record<string, string>>
  /** Where metrics are served; null for nowhere. */
  readonly metrics: { readonly host: string; readonly port: number } | null
  /** Absolute. */
  readonly dataFolder: string
  readonly logLevel: Settings['LOG_LEVEL']
  /** Null: embedded in the data folder. */
  readonly databaseUrl: string | null
  /** Null: requests and answers are stored in the clear. */
  readonly contentKeys: ContentKeySource | null
  /** Null: requests and answers are kept. */
  readonly retentionDays: number | null
  /** Null: this gateway is alone. */
  readonly bus: BusConfig | null
  readonly chain: ChainConfig
  readonly fees: ReturnType<typeof anchoringOf>['fees']
  readonly confirmations: number
  readonly anchorIntervalMs: number
  readonly headAttestationIntervalMs: number
  readonly enclave: EnclaveSource
  /** Null: any enclave is accepted, with any measurements. */
  readonly releases: ReleasesConfig | null
  /** Absolute; null: a private one, where there is a data folder. */
  readonly controlSocket: string | null
  /** Credential by provider name, as in the enclave's provider table. */
  readonly credentials: ReadonlyMap<string, string>
  /** Model ids. */
  readonly providerModels: readonly string[]
  /** Whether providers are asked which models they have. */
  readonly asksProviderModels: boolean
  readonly devApiKey: string | null
  readonly isHistoryOpen: boolean
  /** Whether evidence without content is given without a key. */
  readonly isEvidencePublic: boolean
  /** Null: the built-in tiers (src/accounts/limits/tiers.ts). */
  readonly tiersFile: string | null
  /** Null: no prices. */
  readonly pricesFile: string | null
  /** As browsers send them, or `*`. */
  readonly corsOrigins: readonly string[]
  /** Addresses and CIDRs. */
  readonly trustedProxies: readonly string[]
  readonly keepAliveMs: number
  /** Above 1 the process only supervises so many others (src/processes.ts). */
  readonly processes: number
  readonly bodyBytesMax: number
  readonly memoryBytesMax: number
  readonly verifiedCallsMax: number
  readonly drainDelayMs: number
  readonly shutdownGraceMs: number
  readonly upstream: UpstreamConfig
  /** What evidence bundles say of where they are from; null for nothing. */
  readonly source: BundleSource | null
}

/**
 * Gives the gateway's settings, or throws ConfigurationError with every fault. `warn` is called
 * with each setting that works and should be mended; default: standard error.
 */
export function readGatewayConfig(
  environment: Environment = process.env,
  warn?: (sentence: string) => void,
): GatewayConfig {
  const settings = readSettings(schema, environment, findFaults, warn)
  const upstream = upstreamOf(settings)
  return {
    isProduction: settings.NODE_ENV === 'production',
    isStaging: settings.AFFIDAVIT_STAGING,
    host: settings.HOST,
    port: settings.PORT,
    metrics:
      settings.METRICS_PORT === undefined
        ? null
        : { host: settings.METRICS_HOST, port: settings.METRICS_PORT },
    dataFolder: resolve(settings.DATA_DIR),
    logLevel: settings.LOG_LEVEL,
    traces: tracesOf(settings, 'affidavit-gateway'),
    agentVariables: pickVariables(environment, AGENT_VARIABLES),
    databaseUrl: settings.DATABASE_URL ?? null,
    contentKeys: contentKeysOf(settings),
    retentionDays: settings.RETENTION_DAYS ?? null,
    bus: busOf(settings),
    ...anchoringOf(settings),
    headAttestationIntervalMs: settings.HEAD_ATTESTATION_INTERVAL_MS,
    enclave: enclaveOf(settings, environment),
    releases: releasesOf(settings),
    controlSocket: settings.CONTROL_SOCKET ?? null,
    credentials: credentialsOf(settings),
    providerModels: settings.PROVIDER_MODELS,
    asksProviderModels: settings.PROVIDER_MODELS_ASK,
    devApiKey: settings.DEV_API_KEY ?? null,
    isHistoryOpen: settings.HISTORY_ALL,
    isEvidencePublic: settings.PUBLIC_EVIDENCE,
    tiersFile: settings.RATE_LIMIT_TIERS_FILE ?? null,
    pricesFile: settings.PRICES_FILE ?? null,
    corsOrigins: settings.CORS_ORIGINS,
    trustedProxies: settings.TRUSTED_PROXIES,
    keepAliveMs: settings.KEEP_ALIVE_MS,
    processes: settings.GATEWAY_PROCESSES,
    bodyBytesMax: settings.BODY_BYTES_MAX,
    memoryBytesMax: settings.MEMORY_ADMITTED_BYTES_MAX ?? admittedBytesOf(memoryLimitBytes()),
    verifiedCallsMax: settings.VERIFIED_CALLS_MAX ?? callsMaxOf(settings, descriptorsMax()),
    drainDelayMs: settings.DRAIN_DELAY_MS,
    shutdownGraceMs: settings.SHUTDOWN_GRACE_MS,
    upstream,
    source: sourceOf(settings, upstream.publicOrigin),
  }
}

/** The rest is for the process itself, for what is garbage by now, and for pulls of completions. */
function admittedBytesOf(memoryBytes: number): number {
  return Math.max(64 * 1024 * 1024, Math.floor(memoryBytes / 4))
}

/** A call takes two descriptors; a fifth is for everything else. */
const CALLS_SHARE = 0.4
/** As many as connections are taken, where the system does not state a limit. */
const CALLS_MAX = 30_000
/** The bridges of an image take 1,024 connections, of several gateways. */
const PRODUCTION_CALLS_MAX = 512

function callsMaxOf({ NODE_ENV }: Settings, descriptors: number): number {
  const callsMax = NODE_ENV === 'production' ? PRODUCTION_CALLS_MAX : CALLS_MAX
  return Math.max(1, Math.min(callsMax, Math.floor(descriptors * CALLS_SHARE)))
}

/** Its name in traces stays its own. */
const AGENT_VARIABLES = Object.keys(traceFields).filter((name) => name !== 'OTEL_SERVICE_NAME')

function credentialsOf(settings: Settings): ReadonlyMap<string, string> {
  const byName: readonly (readonly [string, string | undefined])[] = [
    ['openai', settings.OPENAI_API_KEY],
    ['anthropic', settings.ANTHROPIC_API_KEY],
    ['google', settings.GEMINI_API_KEY ?? settings.GOOGLE_API_KEY],
    ['mistral', settings.MISTRAL_API_KEY],
    ['deepseek', settings.DEEPSEEK_API_KEY],
    ['xai', settings.XAI_API_KEY],
    ['groq', settings.GROQ_API_KEY],
    ['together', settings.TOGETHER_API_KEY],
    ['openrouter', settings.OPENROUTER_API_KEY],
  ]
  return new Map(
    byName.filter((entry): entry is readonly [string, string] => entry[1] !== undefined),
  )
}

/** What is wrong with the variables together; each alone is checked by its field. */
function findFaults(given: Environment): readonly string[] {
  return [
    ...chainFaults(given),
    ...busFaults(given),
    ...contentFaults(given),
    ...upstreamFaults(given),
    ...releaseFaults(given),
    ...(Number(given.GATEWAY_PROCESSES ?? 1) > 1 ? processFaults(given) : []),
    ...(given.NODE_ENV === 'production' ? productionFaults(given) : []),
    ...(given.AFFIDAVIT_STAGING === 'true' ? stagingFaults(given) : []),
  ]
}

/**
 * Expectations of AWS's hardware have no place in staging: a simulated module reports the
 * measurements that it was given, so a list of releases would seem to show something.
 */
function stagingFaults(given: Environment): readonly string[] {
  const faults: string[] = []
  if (given.NODE_ENV !== 'production')
    faults.push('AFFIDAVIT_STAGING: expected together with NODE_ENV=production alone')
  if (['error', 'silent'].includes(given.LOG_LEVEL ?? ''))
    faults.push('LOG_LEVEL: expected debug, info or warn in staging, which says so in its log')
  for (const name of ['ENCLAVE_RELEASES_FILE', 'RELEASE_KEY'])
    if (given[name] !== undefined)
      faults.push(`${name}: unexpected in staging, whose enclaves report given measurements`)
  return faults
}

/** Processes share the operator's parts: each would start its own embedded ones. */
function processFaults(given: Environment): readonly string[] {
  return ['DATABASE_URL', 'ENCLAVE_URL', 'CHAIN_RPC_URL'].flatMap((name) =>
    given[name] === undefined ? [`${name}: expected together with GATEWAY_PROCESSES`] : [],
  )
}

/**
 * One fault for each embedded, simulated or demonstration part that would be started, and for each
 * setting that must be made on purpose.
 */
function productionFaults(given: Environment): readonly string[] {
  const faults: string[] = []
  if (given.DATABASE_URL === undefined)
    faults.push('DATABASE_URL: expected in production, which refuses the embedded database')
  if (REMOTE_CHAIN.every((name) => given[name] === undefined))
    faults.push(`${REMOTE_CHAIN.join(', ')}: expected in production, which refuses the local chain`)
  if (given.ENCLAVE_URL === undefined)
    faults.push(
      'ENCLAVE_URL: expected in production, which refuses an enclave with a simulated security module',
      'ENCLAVE_URL: expected in production, which refuses the demo provider',
    )
  if (given.LOCAL_ENCLAVES !== undefined)
    faults.push('LOCAL_ENCLAVES: unexpected in production, which refuses simulated enclaves')
  if (given.HISTORY_ALL === undefined)
    faults.push(
      'HISTORY_ALL: expected in production: false, then each account sees only its own completions; or true, then every account reads the prompts of all accounts',
    )
  if (given.DEV_API_KEY !== undefined)
    faults.push('DEV_API_KEY: unexpected in production, which refuses a fixed key')
  return faults
}
