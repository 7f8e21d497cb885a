import { homedir, hostname } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { z } from 'zod'
import { NODE_TYPES, type NodeType } from '../nodes/protocol/hello.ts'
import { NODE_NAME_LENGTH_MAX, NODE_NAME_LENGTH_MIN } from '../nodes/protocol/registration.ts'
import { type TraceConfig, traceFields, tracesOf } from '../observability/trace-settings.ts'
import {
  flag,
  form,
  integer,
  oneOf,
  positiveNumber,
  secret,
  textField,
  url,
} from '../runtime/fields.ts'
import { type Environment, readSettings } from '../runtime/read-settings.ts'
import { BENCHMARK, TOKENS_PER_SECOND_MIN } from './benchmark.ts'

const HOUR_MS = 3_600_000

/**
 * Every variable of a node agent. Empty counts as unset. Options of the command line take
 * precedence.
 */
const schema = z.object({
  /** The gateway, `https://host[:port]`, without `/v1`. Default: where `npm start` listens. */
  AFFIDAVIT_URL: url(['http', 'https']).default('http://127.0.0.1:3000'),
  /** API key of the account that the node belongs to. */
  AFFIDAVIT_API_KEY: given('an API key of the account that the node belongs to').pipe(secret),
  /**
   * The node's id, as `affidavit node create` or the dashboard gave it. Default: `affidavit node
   * run` finds the node by its name, or makes it; a container (`src/agent/main.ts`) needs the id.
   */
  NODE_ID: form(/^[A-Za-z0-9_.-]{1,256}$/, 'a node id, such as five words joined by _').optional(),
  /**
   * Name of the node, when NODE_ID is not set: 3 to 40 characters. Two agents of one account need
   * two names. Default: the machine's host name.
   */
  NODE_NAME: form(
    new RegExp(
      `^(?=.*\\S)[^\\p{Cc}\\p{Cs}]{${NODE_NAME_LENGTH_MIN},${NODE_NAME_LENGTH_MAX}}$`,
      'u',
    ),
    `${NODE_NAME_LENGTH_MIN} to ${NODE_NAME_LENGTH_MAX} characters without control characters`,
  ).optional(),
  /**
   * File that keeps the ids of this machine's nodes, by gateway and name. It holds no secret.
   * Default: `affidavit/nodes.json` in XDG_STATE_HOME.
   */
  NODES_FILE: textField.optional(),
  /** Absolute path of the folder for state of this user. Default: `~/.local/state`. */
  XDG_STATE_HOME: textField.optional(),
  /**
   * What the node does: LLM chats, DIFFUSION makes images with the one model of NODE_MODELS.
   * Default LLM.
   */
  NODE_TYPE: oneOf(NODE_TYPES).default('LLM'),
  /**
   * The local inference server, `http://host:port`, with or without `/v1`. Default: the first of
   * vLLM, SGLang, llama.cpp, Ollama and LM Studio that answers on its usual port of this machine;
   * servers of images have no usual port, so set it for them.
   */
  BACKEND_URL: url(['http', 'https']).optional(),
  /** Key that the backend asks for. Default: none. */
  BACKEND_API_KEY: secret.optional(),
  /**
   * How long the backend may be silent before and amid an answer, milliseconds. Default 300000 (5
   * min): a long prompt takes minutes on a home machine.
   */
  BACKEND_SILENCE_MS: integer({ min: 1000, max: HOUR_MS }).default(300_000),
  /** Models to serve, with commas between them. Default: all that the backend lists, 17 at most. */
  NODE_MODELS: textField.optional(),
  /**
   * Whether the backend may be given requests whose images are addresses (`http`, `https`), which
   * it then fetches from this machine's network. Callers choose them. Default false: such a request
   * is refused.
   */
  FETCH_IMAGE_URLS: flag.default(false),
  /** Length of a benchmark, milliseconds. Default 60000, as the public client measures. */
  BENCHMARK_MS: integer({ min: 100, max: HOUR_MS }).default(BENCHMARK.durationMs),
  /**
   * Requests at once in a benchmark's second part. Default 8: near what a gateway gives a node at
   * once.
   */
  BENCHMARK_CONCURRENCY: integer({ min: 1, max: 64 }).default(BENCHMARK.concurrency),
  /**
   * Tokens per second below which a benchmark is measured again, and a model left out. Default 1.
   */
  BENCHMARK_TOKENS_PER_SECOND_MIN: positiveNumber({ max: 1_000_000 }).default(
    TOKENS_PER_SECOND_MIN,
  ),
  /**
   * How long a stop waits for running requests, milliseconds. Default 25000: orchestrators commonly
   * kill after 30 s.
   */
  DRAIN_MS: integer({ min: 0, max: HOUR_MS }).default(25_000),
  /**
   * Whether the gateway may be reached over plain http beyond this machine. Default false: the key
   * would be readable.
   */
  AFFIDAVIT_PLAIN_HTTP: flag.default(false),
  /** Least severe log lines that are written. Default info. */
  LOG_LEVEL: oneOf(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  ...traceFields,
})

function given(what: string) {
  return z.string({ error: `expected ${what}` })
}

type Settings = z.output<typeof schema>

export type GatewayAccess = { readonly gatewayUrl: string; readonly apiKey: string }

type NodeChoice = {
  /** Null selects the account's node with the name `nodeName`. Its id can be in `nodesFile`. */
  readonly nodeId: string | null
  readonly nodeName: string
  /** Path of the file with ids of nodes. */
  readonly nodesFile: string
}

/** The node belongs to the account of the API key. */
export type NodeAccess = GatewayAccess & NodeChoice

type BenchmarkConfig = {
  readonly backend: BackendConfig
  readonly durationMs: number
  readonly concurrency: number
  readonly tokensPerSecondMin: number
}

export type BackendConfig = {
  /** Null searches this machine for a backend. */
  readonly url: string | null
  readonly apiKey: string | null
  readonly silenceMs: number
  /** Null selects all models that the backend lists. */
  readonly models: readonly string[] | null
}

export type AgentConfig = GatewayAccess &
  BenchmarkConfig & {
    readonly nodeId: string
    readonly nodeType: NodeType
    readonly fetchesMedia: boolean
    readonly drainMs: number
    readonly logLevel: Settings['LOG_LEVEL']
    /** Null sends no traces. */
    readonly traces: TraceConfig | null
  }

/** `options` take precedence over the environment. Throws ConfigurationError with every fault. */
export function readAgentConfig(
  options: Environment = {},
  environment: Environment = process.env,
): AgentConfig {
  const settings = readSettings(schema, merge(environment, options), (given) => [
    ...(given.NODE_ID === undefined ? ['NODE_ID: expected the id of the node'] : []),
    ...findAgentFaults(given),
  ])
  return { ...agentOf(settings), nodeId: settings.NODE_ID ?? '' }
}

/** The node need not exist yet. Throws as readAgentConfig does. */
export function readRunConfig(
  options: Environment = {},
  environment: Environment = process.env,
): Omit<AgentConfig, 'nodeId'> & NodeChoice {
  const settings = readSettings(schema, merge(environment, options), findAgentFaults)
  return { ...agentOf(settings), ...choiceOf(settings) }
}

function agentOf(settings: Settings): Omit<AgentConfig, 'nodeId'> {
  return {
    ...accessOf(settings),
    ...benchmarkOf(settings),
    nodeType: settings.NODE_TYPE,
    fetchesMedia: settings.FETCH_IMAGE_URLS,
    drainMs: settings.DRAIN_MS,
    logLevel: settings.LOG_LEVEL,
    traces: tracesOf(settings, 'affidavit-agent'),
  }
}

/** For requests without a node id. Throws as readAgentConfig does. */
export function readGatewayAccess(
  options: Environment = {},
  environment: Environment = process.env,
): GatewayAccess {
  const wanted = schema.pick({
    AFFIDAVIT_URL: true,
    AFFIDAVIT_API_KEY: true,
    AFFIDAVIT_PLAIN_HTTP: true,
  })
  return accessOf(readSettings(wanted, merge(environment, options), findFaults))
}

/** For requests about one node. Throws as readAgentConfig does. */
export function readNodeAccess(
  options: Environment = {},
  environment: Environment = process.env,
): NodeAccess {
  const wanted = schema.pick({
    AFFIDAVIT_URL: true,
    AFFIDAVIT_API_KEY: true,
    AFFIDAVIT_PLAIN_HTTP: true,
    NODE_ID: true,
    NODE_NAME: true,
    NODES_FILE: true,
    XDG_STATE_HOME: true,
  })
  const settings = readSettings(wanted, merge(environment, options), findFaults)
  return { ...accessOf(settings), ...choiceOf(settings) }
}

/** Throws as readAgentConfig does. */
export function readBenchmarkConfig(
  options: Environment = {},
  environment: Environment = process.env,
): BenchmarkConfig {
  const wanted = schema.pick({
    BACKEND_URL: true,
    BACKEND_API_KEY: true,
    BACKEND_SILENCE_MS: true,
    NODE_MODELS: true,
    BENCHMARK_MS: true,
    BENCHMARK_CONCURRENCY: true,
    BENCHMARK_TOKENS_PER_SECOND_MIN: true,
  })
  return benchmarkOf(readSettings(wanted, merge(environment, options), findFaults))
}

function merge(environment: Environment, options: Environment): Environment {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  // An option also takes precedence over the `_FILE` form of its variable.
  const files = given.map(([name]) => [`${name}_FILE`, undefined])
  return { ...environment, ...Object.fromEntries([...given, ...files]) }
}

function accessOf(settings: Pick<Settings, 'AFFIDAVIT_URL' | 'AFFIDAVIT_API_KEY'>): GatewayAccess {
  return { gatewayUrl: withoutVersion(settings.AFFIDAVIT_URL), apiKey: settings.AFFIDAVIT_API_KEY }
}

function choiceOf({
  NODE_ID: nodeId,
  NODE_NAME: nodeName,
  NODES_FILE: nodesFile,
  XDG_STATE_HOME: stateFolder,
}: Pick<Settings, 'NODE_ID' | 'NODE_NAME' | 'NODES_FILE' | 'XDG_STATE_HOME'>): NodeChoice {
  return {
    nodeId: nodeId ?? null,
    nodeName: nodeName ?? nameOfMachine(hostname()),
    nodesFile: nodesFile ?? join(chooseStateFolder(stateFolder), 'affidavit/nodes.json'),
  }
}

/** The XDG Base Directory Specification says that relative paths are ignored. */
function chooseStateFolder(folder: string | undefined): string {
  return folder !== undefined && isAbsolute(folder) ? folder : join(homedir(), '.local/state')
}

/** Changes the host name to fit the rules for node names. */
export function nameOfMachine(host: string): string {
  const name = host.replace(/[^\x21-\x7e]/g, '').slice(0, NODE_NAME_LENGTH_MAX)
  return name.length < NODE_NAME_LENGTH_MIN ? `node-${name}` : name
}

function benchmarkOf(
  settings: Pick<
    Settings,
    | 'BACKEND_URL'
    | 'BACKEND_API_KEY'
    | 'BACKEND_SILENCE_MS'
    | 'NODE_MODELS'
    | 'BENCHMARK_MS'
    | 'BENCHMARK_CONCURRENCY'
    | 'BENCHMARK_TOKENS_PER_SECOND_MIN'
  >,
): BenchmarkConfig {
  return {
    backend: {
      url: settings.BACKEND_URL === undefined ? null : withoutVersion(settings.BACKEND_URL),
      apiKey: settings.BACKEND_API_KEY ?? null,
      silenceMs: settings.BACKEND_SILENCE_MS,
      models: settings.NODE_MODELS === undefined ? null : splitNames(settings.NODE_MODELS),
    },
    durationMs: settings.BENCHMARK_MS,
    concurrency: settings.BENCHMARK_CONCURRENCY,
    tokensPerSecondMin: settings.BENCHMARK_TOKENS_PER_SECOND_MIN,
  }
}

function findFaults(given: Environment): readonly string[] {
  const faults: string[] = []
  const gateway = given.AFFIDAVIT_URL
  if (gateway !== undefined && given.AFFIDAVIT_PLAIN_HTTP !== 'true' && !keepsSecrets(gateway))
    faults.push(
      'AFFIDAVIT_URL: expected https beyond this machine, or AFFIDAVIT_PLAIN_HTTP=true: the key would be readable',
    )
  for (const name of ['AFFIDAVIT_URL', 'BACKEND_URL'] as const)
    if (given[name] !== undefined && !isPlain(given[name]))
      faults.push(`${name}: expected a URL without user, query and fragment`)
  if (given.NODE_MODELS !== undefined && splitNames(given.NODE_MODELS).length === 0)
    faults.push('NODE_MODELS: expected at least one model')
  return faults
}

function findAgentFaults(given: Environment): readonly string[] {
  if (given.NODE_TYPE !== 'DIFFUSION') return findFaults(given)
  const faults = [...findFaults(given)]
  if ((given.BACKEND_URL ?? '') === '')
    faults.push('BACKEND_URL: expected the image server of a DIFFUSION node: it is not looked for')
  if (splitNames(given.NODE_MODELS ?? '').length > 1)
    faults.push('NODE_MODELS: expected one model, for a DIFFUSION node')
  return faults
}

/** Accepts text that is not a URL: the schema reports it. */
function keepsSecrets(address: string): boolean {
  if (!URL.canParse(address)) return true
  const { protocol, hostname } = new URL(address)
  return protocol !== 'http:' || /^(localhost|\[::1\]|127\.\d+\.\d+\.\d+)$/.test(hostname)
}

function isPlain(address: string): boolean {
  if (!URL.canParse(address)) return true
  const { username, password, search, hash } = new URL(address)
  return username + password + search + hash === ''
}

function withoutVersion(address: string): string {
  return address.replace(/\/+$/, '').replace(/\/v1$/, '')
}

function splitNames(names: string): readonly string[] {
  return names
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
}
