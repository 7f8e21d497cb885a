import { resolve } from 'node:path'
import { z } from 'zod'
import type { BundleSource } from '#attestation/evidence/bundle-source.ts'
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
  enclaveFaults,
  enclaveOf,
  type ReleasesConfig,
  releasesOf,
} from './enclaves/settings.ts'
import type { NodeLimits } from './nodes/runs/limits.ts'
import { type TraceConfig, traceFields, tracesOf } from './observability/trace-settings.ts'
import { collectionOf, PROVIDER_FIELDS, type ProvidersConfig } from './providers/settings.ts'
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
 * Every variable of the gateway's process. An empty variable counts as unset. The enclave's
 * variables are in enclave/config.ts.
 */
const schema = z.object({
  /**
   * `production` refuses to start any embedded, simulated or demonstration part. Default:
   * development. Unknown words are refused: a misspelt `production` must not start simulated parts.
   */
  NODE_ENV: oneOf(['development', 'test', 'production']).default('development'),
  /**
   * `true`: a staging system. It requires NODE_ENV=production. All checks of production apply,
   * except that enclaves must have a simulated security module, whose root no default policy
   * trusts; a module of AWS is refused. The log, `GET /`, `/readyz`, a header of every answer and
   * the metrics say that this is staging (deploy/STAGING.md). Default false.
   */
  AFFIDAVIT_STAGING: flag.default(false),
  /**
   * Address to listen on. Default 127.0.0.1. With any other address, other machines can connect.
   */
  HOST: textField.default('127.0.0.1'),
  /** TCP port to listen on. Default 3000. With 0 a free port is taken and printed. */
  PORT: port.default(3000),
  /**
   * TCP port of `GET /metrics` for Prometheus. With 0 a free port is taken and logged. Default: no
   * port is opened, because `/metrics` requires no key.
   */
  METRICS_PORT: port.optional(),
  /**
   * Address of the metrics port. Default 127.0.0.1: the port is for a collector on this machine,
   * never for the public.
   */
  METRICS_HOST: textField.default('127.0.0.1'),
  /**
   * Folder for data that is kept between starts: embedded database, local chain, development key.
   * Default ./.affidavit.
   */
  DATA_DIR: textField.default('.affidavit'),
  /**
   * Lowest severity of log lines that are written. Default info: one line per request. `silent`
   * writes no lines.
   */
  LOG_LEVEL: oneOf(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  ...traceFields,

  /**
   * The Postgres database, `postgres://user:password@host:port/name`. Default: an embedded PGlite
   * in DATA_DIR.
   */
  DATABASE_URL: confidential(url(['postgres', 'postgresql'])).optional(),

  ...CONTENT_KEY_FIELDS,
  /**
   * Days after which requests and answers are erased from stored completions. Their proofs stay. An
   * account's own value overrides this one (`affidavit accounts set-retention`). Default: requests
   * and answers are kept.
   */
  RETENTION_DAYS: integer({ min: 1, max: RETENTION_DAYS_MAX }).optional(),

  ...BUS_FIELDS,

  ...CHAIN_FIELDS,

  /**
   * How often the enclave attests the state of its log together with a recent block's hash,
   * milliseconds. The time of each completion is between two such attestations. Default 600000 (10
   * min): at most 144 documents of 5 KB a day. At least 1000.
   */
  HEAD_ATTESTATION_INTERVAL_MS: integer({ min: 1000, max: 24 * 60 * MINUTE_MS }).default(
    10 * MINUTE_MS,
  ),

  ...ENCLAVE_FIELDS,
  /**
   * Path of the Unix socket over which `affidavit` controls this process. Only the gateway's user
   * and root can connect to it. Default: a socket in a private folder; a file in DATA_DIR has its
   * path. In production there is no default, because there is no data folder.
   */
  CONTROL_SOCKET: form(/^\/.{1,106}$/, 'the absolute path of a socket').optional(),

  /**
   * The operator's credentials at the providers. A caller's Fine-Tune-Authorization is used instead
   * when it is present. Default: unset.
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
  /** Another name for GEMINI_API_KEY. GEMINI_API_KEY is used when both are set. */
  GOOGLE_API_KEY: secret.optional(),

  /**
   * Ids of provider models, comma-separated. `GET /v1/models` and `GET /v1/verified/models` list
   * them in addition to the models that the enclave's provider table names in full. Default: empty.
   * The table also has patterns (`gpt-*`); for a pattern, the gateway asks the provider for its
   * models (PROVIDER_MODELS_ASK).
   */
  PROVIDER_MODELS: listField({ itemsMax: 1_000, lengthMax: 512 }).default([]),
  /**
   * Whether the gateway asks each provider for its models, once an hour, so that `GET
   * /v1/verified/models` lists them. It asks only providers for which it has a credential. Default
   * true. With false, a model that matches a pattern is listed after its first use.
   */
  PROVIDER_MODELS_ASK: flag.default(true),
  ...PROVIDER_FIELDS,

  /**
   * An API key that is valid while this variable is set, for scripts. Default: a random key that
   * the first start makes, kept in DATA_DIR/api-key.
   */
  DEV_API_KEY: confidential(
    form(/^[\x21-\x7e]{8,200}$/, '8 to 200 printable characters without blanks'),
  ).optional(),
  /**
   * Whether every account may read the completions, prompts and answers of all accounts, with
   * `filter=all` and by hash. Production requires this variable, and logs a warning at each start
   * when it is true. Default in development: true, as in the interface.
   */
  HISTORY_ALL: flag.default(true),
  /**
   * Whether `/v1/evidence/{hash}` gives a completion's evidence without its content, and without a
   * key: provider, models, times, outcome, hashes, place in the log. Default true, for pages that
   * show this evidence. A person who knows the hash can use it to guess the content of a request
   * without a nonce.
   */
  PUBLIC_EVIDENCE: flag.default(true),
  /**
   * Origins of web pages that may call the API, comma-separated:
   * `https://app.example,http://localhost:5173`, or `*` for all. Default: no origin, because a page
   * must not contain an API key, except the key of the user of that page.
   */
  CORS_ORIGINS: origins({ itemsMax: 100 }).default([]),
  /**
   * Addresses and CIDRs of the reverse proxies in front, comma-separated: `10.0.0.0/8, ::1`. When a
   * proxy in this list sends a call, the caller's address is the last one in `x-forwarded-for` that
   * is not in this list: in the log, and for the limits of callers without a key. Default: empty,
   * because any caller can send this header. Then all callers behind a proxy have its address, and
   * share the limits of one address.
   */
  TRUSTED_PROXIES: addressRanges({ itemsMax: 100 }).default([]),
  /**
   * JSON file of the accounts' tiers and their limits; src/accounts/limits/README.md describes its
   * form. It is read again on SIGHUP. Default in development: no limits. Default in production: the
   * limits of a common free tier (60 requests and 40,000 tokens a minute, 33,000 and 4,000,000 a
   * day, for each kind of call). These limits reduce the operator's cost if a key leaks.
   */
  RATE_LIMIT_TIERS_FILE: textField.optional(),
  /**
   * JSON file of the prices of models, for budgets of money; docs/operating/accounts-and-budgets.md
   * describes its form. It is read again on SIGHUP. Default: no prices. Accounts with a budget of
   * money are then refused.
   */
  PRICES_FILE: textField.optional(),
  /**
   * Time between two comments in a stream, milliseconds; it applies also while the stream is busy.
   * Default 15000: shorter than the idle time after which proxies close a connection. In
   * encrypted streams the enclave writes a comment after each 15 s of silence.
   */
  KEEP_ALIVE_MS: integer({ min: 100, max: 10 * MINUTE_MS }).default(15_000),
  /**
   * How long a node may be silent before the first token of a stream, milliseconds. Another node is
   * then asked. Default 30000.
   */
  NODE_FIRST_TOKEN_MS: integer({ min: 1000, max: 60 * MINUTE_MS }).default(30_000),
  /**
   * How long the first token may take at a node that says that its backend works, milliseconds.
   * Default 600000 (10 min): what a long prompt takes on a home machine.
   */
  NODE_PREFILL_MS: integer({ min: 1000, max: 60 * MINUTE_MS }).default(10 * MINUTE_MS),
  /**
   * How long a node may be silent between two tokens, milliseconds. Default 30000.
   */
  NODE_TOKEN_MS: integer({ min: 1000, max: 60 * MINUTE_MS }).default(30_000),
  /**
   * Largest request body, bytes. Default 10485760 (10 MiB), as in the interface. A larger value
   * applies to plain calls only: the enclave takes at most 10 MiB (REQUEST_BYTES_MAX), and a node
   * 16 MiB (an older agent 1 MiB). The form of an image edit may always have 26 MiB.
   */
  BODY_BYTES_MAX: integer({ min: 1024, max: 64 * 1024 * 1024 }).default(10 * 1024 * 1024),
  /**
   * Memory that the bodies of all calls together may take, bytes. Answers that wait for their
   * readers may take as much again. It is an estimate: five times the held bytes, and more for JSON
   * of many small values. Above this limit, calls are refused with 503 `overloaded`, and a body
   * that is too large by itself with 413. An eighth is reserved for small calls. Bodies of
   * encrypted calls do not count. Default: a quarter of the memory that the process may use (its
   * control group's limit, else the machine's memory, divided by GATEWAY_PROCESSES), at least 64
   * MiB.
   */
  MEMORY_ADMITTED_BYTES_MAX: integer({ min: 16 * 1024 * 1024, max: 2 ** 40 }).optional(),
  /**
   * Maximum number of verified calls at once; open streams count. Each call also takes 100 KiB of
   * MEMORY_ADMITTED_BYTES_MAX. Default: how many calls fit in two fifths of the file descriptors (a
   * call takes two), at most 30000. In production the default is at most 512 divided by
   * GATEWAY_PROCESSES, because each connection to an enclave in an image needs two processes of its
   * bridges.
   */
  VERIFIED_CALLS_MAX: integer({ min: 1, max: 100_000 }).optional(),
  /**
   * How long a stopping gateway still accepts calls before it closes the port, milliseconds;
   * `/readyz` reports "not ready" during this time. Default 0, for development. Behind a load
   * balancer, set it longer than the load balancer needs to see this
   * (docs/operating/stop-a-gateway.md).
   */
  DRAIN_DELAY_MS: integer({ min: 0, max: 10 * MINUTE_MS }).default(0),
  /**
   * Number of gateway processes that serve PORT together. Each is a whole gateway and uses one
   * core. Several processes need DATABASE_URL, ENCLAVE_URL and CHAIN_RPC_URL. With NATS_URL, each
   * process also uses the nodes of the others. Each has its own METRICS_PORT and CONTROL_SOCKET:
   * the ports count up from the given port; the paths end with `.0`, `.1` and so on. Default 1.
   */
  GATEWAY_PROCESSES: integer({ min: 1, max: 64 }).default(1),
  /**
   * How long a stop waits for running calls, milliseconds. Default 25000: orchestrators usually
   * kill a process after 30 s.
   */
  SHUTDOWN_GRACE_MS: integer({ min: 0, max: 60 * MINUTE_MS }).default(25_000),
  ...UPSTREAM_FIELDS,
  ...SOURCE_FIELDS,
})

type Settings = z.output<typeof schema>

/** Settings of the gateway's process, as values. The variables are described in this file. */
export type GatewayConfig = {
  readonly isProduction: boolean
  /**
   * True in production with a simulated security module. Logs, pages and answers then say that this
   * is a staging system.
   */
  readonly isStaging: boolean
  readonly host: string
  readonly port: number
  /** Where traces are sent; null: traces are off. */
  readonly traces: TraceConfig | null
  /**
   * Variables for the demonstration's agent. They make the agent send traces as the gateway does.
   */
  readonly agentVariables: Readonly<Record<string, string>>
  /** Where metrics are served; null: metrics are not served. */
  readonly metrics: { readonly host: string; readonly port: number } | null
  /** Absolute. */
  readonly dataFolder: string
  readonly logLevel: Settings['LOG_LEVEL']
  /** Null: the database is embedded, in the data folder. */
  readonly databaseUrl: string | null
  /** Null: requests and answers are stored unencrypted. */
  readonly contentKeys: ContentKeySource | null
  /** Null: requests and answers are kept without a time limit. */
  readonly retentionDays: number | null
  /** Null: this is the only gateway of its service. */
  readonly bus: BusConfig | null
  readonly chain: ChainConfig
  readonly fees: ReturnType<typeof anchoringOf>['fees']
  readonly confirmations: number
  readonly anchorIntervalMs: number
  readonly headAttestationIntervalMs: number
  readonly enclave: EnclaveSource
  /** Null: any enclave is accepted, with any measurements. */
  readonly releases: ReleasesConfig | null
  /** An absolute path. Null: a private socket when there is a data folder, else no socket. */
  readonly controlSocket: string | null
  /** Credential by provider name, as in the enclave's provider table. */
  readonly credentials: ReadonlyMap<string, string>
  /** Model ids. */
  readonly providerModels: readonly string[]
  /** True if the gateway asks providers which models they have. */
  readonly asksProviderModels: boolean
  readonly providers: ProvidersConfig
  readonly devApiKey: string | null
  readonly isHistoryOpen: boolean
  /** True if a person without a key can read evidence without content. */
  readonly isEvidencePublic: boolean
  /** Null: the built-in tiers (src/accounts/limits/tiers.ts). */
  readonly tiersFile: string | null
  /** Null: no prices. */
  readonly pricesFile: string | null
  /** Origins as browsers send them, or `*`. */
  readonly corsOrigins: readonly string[]
  /** Addresses and CIDRs. */
  readonly trustedProxies: readonly string[]
  readonly nodeWaits: Pick<NodeLimits, 'firstTokenMs' | 'prefillMs' | 'tokenMs'>
  readonly keepAliveMs: number
  /** If this is more than 1, this process only supervises the gateways (src/processes.ts). */
  readonly processes: number
  readonly bodyBytesMax: number
  readonly memoryBytesMax: number
  readonly verifiedCallsMax: number
  readonly drainDelayMs: number
  readonly shutdownGraceMs: number
  readonly upstream: UpstreamConfig
  /** The source that evidence names. Null: evidence names no source. */
  readonly source: BundleSource | null
}

/**
 * Reads the gateway's settings. Throws ConfigurationError, which lists every fault. Calls `warn`
 * for each setting that works but should be corrected; by default, `warn` writes to standard error.
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
    providers: collectionOf(settings),
    devApiKey: settings.DEV_API_KEY ?? null,
    isHistoryOpen: settings.HISTORY_ALL,
    isEvidencePublic: settings.PUBLIC_EVIDENCE,
    tiersFile: settings.RATE_LIMIT_TIERS_FILE ?? null,
    pricesFile: settings.PRICES_FILE ?? null,
    corsOrigins: settings.CORS_ORIGINS,
    trustedProxies: settings.TRUSTED_PROXIES,
    keepAliveMs: settings.KEEP_ALIVE_MS,
    nodeWaits: {
      firstTokenMs: settings.NODE_FIRST_TOKEN_MS,
      prefillMs: settings.NODE_PREFILL_MS,
      tokenMs: settings.NODE_TOKEN_MS,
    },
    processes: settings.GATEWAY_PROCESSES,
    bodyBytesMax: settings.BODY_BYTES_MAX,
    memoryBytesMax:
      settings.MEMORY_ADMITTED_BYTES_MAX ??
      admittedBytesOf(memoryLimitBytes(settings.GATEWAY_PROCESSES)),
    verifiedCallsMax: settings.VERIFIED_CALLS_MAX ?? callsMaxOf(settings, descriptorsMax()),
    drainDelayMs: settings.DRAIN_DELAY_MS,
    shutdownGraceMs: settings.SHUTDOWN_GRACE_MS,
    upstream,
    source: sourceOf(settings, upstream.publicOrigin),
  }
}

/**
 * Calls get a quarter of the memory. The process itself, uncollected garbage and pulls of
 * completions use the rest.
 */
function admittedBytesOf(memoryBytes: number): number {
  return Math.max(64 * 1024 * 1024, Math.floor(memoryBytes / 4))
}

/**
 * Default number of calls for each file descriptor. A call takes two descriptors, so calls use four
 * fifths of the descriptors.
 */
const CALLS_SHARE = 0.4
/** Largest default number of calls. It applies on systems without a limit of file descriptors. */
const CALLS_MAX = 30_000
/** The bridges of an enclave image take 1,024 connections, which several gateways share. */
const PRODUCTION_CALLS_MAX = 512

/** The processes share the bridges. Each process has the whole limit of file descriptors. */
function callsMaxOf({ NODE_ENV, GATEWAY_PROCESSES }: Settings, descriptors: number): number {
  const callsMax =
    NODE_ENV === 'production' ? Math.floor(PRODUCTION_CALLS_MAX / GATEWAY_PROCESSES) : CALLS_MAX
  return Math.max(1, Math.min(callsMax, Math.floor(descriptors * CALLS_SHARE)))
}

/** OTEL_SERVICE_NAME is left out, so that the agent keeps its own name in traces. */
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

/** Finds faults in the combination of variables. The schema checks each variable alone. */
function findFaults(given: Environment): readonly string[] {
  return [
    ...chainFaults(given),
    ...busFaults(given),
    ...contentFaults(given),
    ...upstreamFaults(given),
    ...enclaveFaults(given),
    ...(Number(given.GATEWAY_PROCESSES ?? 1) > 1 ? processFaults(given) : []),
    ...(given.NODE_ENV === 'production' ? productionFaults(given) : []),
    ...(given.AFFIDAVIT_STAGING === 'true' ? stagingFaults(given) : []),
  ]
}

/**
 * Returns the faults of staging settings. Expected measurements are refused: they would prove
 * nothing, because the operator chooses what a simulated module reports.
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

/**
 * Several gateway processes must share external parts. Otherwise each process would start its own
 * embedded parts.
 */
function processFaults(given: Environment): readonly string[] {
  return ['DATABASE_URL', 'ENCLAVE_URL', 'CHAIN_RPC_URL'].flatMap((name) =>
    given[name] === undefined ? [`${name}: expected together with GATEWAY_PROCESSES`] : [],
  )
}

/**
 * Returns one fault for each embedded, simulated or demonstration part that would start, and for
 * each missing setting that production requires.
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
