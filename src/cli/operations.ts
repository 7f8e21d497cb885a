import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Client, fetch } from 'undici'
import {
  callGateway,
  errorWordsOf,
  type Fetch,
  type GatewayOptions,
  NoAnswer,
} from '#client/gateway.ts'
import { accountActs } from '../accounts/account-acts.ts'
import type { Act, ActPlace } from '../accounts/acts.ts'
import { adminLogActs } from '../accounts/admin-log-acts.ts'
import { createAdminLog } from '../accounts/admin-log-store.ts'
import { budgetActs } from '../accounts/budget-acts.ts'
import { keyActs } from '../accounts/key-acts.ts'
import { readTiers } from '../accounts/limits/tiers.ts'
import { usageActs } from '../accounts/usage-acts.ts'
import type { Operator } from '../api/context.ts'
import {
  isAnswered,
  nameOperator,
  OPERATOR_UID_HEADER,
  PROCESSES_HEADER,
  readControlAddress,
} from '../api/control-address.ts'
import { ApiError, errorReply, ValidationError } from '../api/errors.ts'
import { relayerActs } from '../chain/relayer-acts.ts'
import { enclaveActs } from '../enclaves/enclave-acts.ts'
import { StartFailure } from '../runtime/starting.ts'
import { admitContentKeys } from '../storage/content-keys-store.ts'
import { type Database, startDatabase } from '../storage/database.ts'
import { contentActs } from '../verified/records/content-acts.ts'
import { erasureActs } from '../verified/records/erasure-acts.ts'
import { ActRefused, CliError } from './faults.ts'
import { type CliConfig, readCliConfig } from './operator/config.ts'

/** Acts that work without a gateway, directly in the database. */
const DATABASE_ACTS = {
  keys: keyActs,
  accounts: accountActs,
  budgets: budgetActs,
  usage: usageActs,
  adminLog: adminLogActs,
  erasures: erasureActs,
  content: contentActs,
} as const

const GATEWAY_ACTS = { ...DATABASE_ACTS, enclaves: enclaveActs, relayers: relayerActs } as const

type Gateway = GatewayOperations & { close(): Promise<void> }

type Acts<Over> = Readonly<Record<string, Readonly<Record<string, Act<Over, never, object>>>>>

type OperationsOf<Resources extends Acts<never>> = {
  readonly [Name in keyof Resources]: {
    readonly [Verb in keyof Resources[Name]]: Resources[Name][Verb] extends Act<
      never,
      infer Given,
      infer Reply
    >
      ? (given: Given) => Promise<Reply>
      : never
  }
}

export type Operations = OperationsOf<typeof DATABASE_ACTS>

/** All acts, including the acts that need a running gateway. */
export type GatewayOperations = OperationsOf<typeof GATEWAY_ACTS>

/**
 * Uses the configured Postgres server, otherwise the gateway at the configured control socket. With
 * neither, uses the gateway of the data folder, or the folder's database if no gateway runs. With
 * `needsContentKeys`, a database is opened with the keys of stored content. Throws CliError if no
 * gateway answers at the socket, or no database can be opened.
 */
export async function withOperations<Result>(
  run: (operations: Operations) => Promise<Result>,
  { needsContentKeys = false }: { readonly needsContentKeys?: boolean } = {},
): Promise<Result> {
  const { contentKeys, ...others } = readCliConfig()
  const config = { ...others, contentKeys: needsContentKeys ? contentKeys : null }
  const gateway = config.databaseUrl === null ? await findGateway(config) : null
  if (gateway !== null) return run(gateway).finally(() => gateway.close())
  try {
    return await withDatabase(config, run)
  } catch (error) {
    if (error instanceof StartFailure) throw new CliError(error.message)
    throw error
  }
}

/** Runs `run` with one process of the gateway. Use it for acts that every process does alike. */
export async function withGateway<Result>(
  run: (operations: GatewayOperations) => Promise<Result>,
): Promise<Result> {
  const { dataFolder, controlSocket } = readCliConfig()
  const gateway = await connectOrFail(dataFolder, controlSocket && (await socketOf(controlSocket)))
  return run(gateway).finally(() => gateway.close())
}

/** Processes of one gateway. */
export type GatewayProcesses = readonly GatewayOperations[]

/**
 * Runs `run` with the operations of each process of the running gateway, at the configured control
 * socket or at the data folder's. Throws CliError if no gateway runs there, or if one of its
 * processes does not answer.
 */
export async function withGatewayProcesses<Result>(
  run: (processes: GatewayProcesses) => Promise<Result>,
): Promise<Result> {
  const { dataFolder, controlSocket } = readCliConfig()
  const sockets = controlSocket === null ? [null] : await listControlSockets(controlSocket)
  const gateways: Gateway[] = []
  try {
    for (const socket of sockets) gateways.push(await connectOrFail(dataFolder, socket))
    return await run(gateways)
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.close()))
  }
}

/** Returns `socket`, or the sockets of all processes of GATEWAY_PROCESSES: `.0`, `.1` and so on. */
async function listControlSockets(socket: string): Promise<readonly string[]> {
  const found = await findControlSocket(socket)
  if (found === null || found === socket) return [socket]
  const count = await countProcesses(found)
  return Array.from({ length: count }, (_, place) => `${socket}.${place}`)
}

/** Null if no control socket is configured, and no gateway runs on the data folder. */
async function findGateway({
  dataFolder,
  controlSocket,
}: Pick<CliConfig, 'dataFolder' | 'controlSocket'>): Promise<Gateway | null> {
  return controlSocket === null
    ? connectToGateway(dataFolder)
    : connectOrFail(dataFolder, await socketOf(controlSocket))
}

/** The socket where a gateway answers, of `socket` and the sockets of its processes. */
async function socketOf(socket: string): Promise<string> {
  return (await findControlSocket(socket)) ?? socket
}

/** Returns `socket`, or a process's socket, where a gateway answers. Null if none answers. */
async function findControlSocket(socket: string): Promise<string | null> {
  const name = basename(socket)
  const files = await readdir(dirname(socket)).catch(() => [])
  const places = files.filter(
    (file) => file.startsWith(`${name}.`) && /^\d{1,2}$/.test(file.slice(name.length + 1)),
  )
  for (const path of [socket, ...places.map((file) => join(dirname(socket), file))])
    if (await isAnswered(path)) return path
  return null
}

/** Asks a process how many there are, because a process that starts has no socket yet. */
async function countProcesses(socketPath: string): Promise<number> {
  const dispatcher = openSocket(socketPath)
  try {
    const { headers } = await dispatcher.request({ method: 'GET', path: '/' })
    const count = Number(headers[PROCESSES_HEADER])
    if (!Number.isInteger(count) || count < 1) throw new CliError(OTHER_VERSION)
    return count
  } finally {
    await dispatcher.destroy()
  }
}

async function connectOrFail(dataFolder: string, socket: string | null): Promise<Gateway> {
  const gateway = await connectToGateway(dataFolder, socket)
  if (gateway !== null) return gateway
  throw new CliError(
    `no gateway answers at ${socket ?? `the socket that ${dataFolder} names`}: set ` +
      'CONTROL_SOCKET or DATA_DIR as the gateway has them; with GATEWAY_PROCESSES, wait until ' +
      'all processes run',
  )
}

/**
 * Returns the names of the new migrations. Concurrent calls run one after another. Throws CliError.
 */
export async function migrateDatabase({
  databaseUrl,
  dataFolder,
}: Pick<CliConfig, 'databaseUrl' | 'dataFolder'>): Promise<readonly string[]> {
  try {
    const place = { url: databaseUrl, dataFolder }
    const database = await startDatabase(place, { warn: () => undefined })
    const { migrated } = database
    const act = { kind: 'database.migrate', target: 'schema', details: { migrations: migrated } }
    try {
      if (migrated.length > 0) await createAdminLog(database).append(commandLine(), act)
    } finally {
      await database.close()
    }
    return migrated
  } catch (error) {
    if (error instanceof StartFailure) throw new CliError(error.message)
    throw error
  }
}

async function withDatabase<Result>(
  { databaseUrl, dataFolder, tiersFile, contentKeys }: CliConfig,
  run: (operations: Operations) => Promise<Result>,
): Promise<Result> {
  if (databaseUrl === null && !existsSync(dataFolder))
    throw new CliError(
      `there is no data folder ${dataFolder}: set DATA_DIR or DATABASE_URL, or start the gateway once`,
    )
  const read = tiersFile === null ? null : await readTiers(tiersFile)
  const tiers = read && (() => [...read.byName.keys()])
  const place = { url: databaseUrl, dataFolder, contentKeys }
  const database = await startDatabase(place, { warn: () => undefined })
  try {
    const adminLog = createAdminLog(database)
    if (contentKeys !== null) {
      const key = await admitContentKeys(database, { warn: () => undefined })
      if (key !== null)
        await adminLog.append(commandLine(), { kind: 'content.use_key', target: key })
    }
    return await run(operationsIn({ database, adminLog, tiers }, commandLine()))
  } finally {
    await database.close()
  }
}

function commandLine(): Operator {
  return { who: nameOperator(uidOfUser()), accountId: null, from: 'command line' }
}

/** Returns null on a system without user ids. */
function uidOfUser(): string | null {
  return process.getuid === undefined ? null : String(process.getuid())
}

type Place = ActPlace & {
  readonly database: Database
  /** Null: any name is accepted. */
  readonly tiers: (() => readonly string[]) | null
}

/** The operations throw ActRefused. */
export function operationsIn(place: Place, operator: Operator): Operations {
  return bind<Place, typeof DATABASE_ACTS>(DATABASE_ACTS, async (act, given) => {
    try {
      return await act.perform(given, place, operator)
    } catch (error) {
      if (error instanceof ApiError || error instanceof ValidationError)
        throw refusalOf(Buffer.from(errorReply(error).body))
      throw error
    }
  })
}

function bind<Over, Resources extends Acts<Over>>(
  resources: Resources,
  ask: (act: Act<Over, never, object>, given: never) => Promise<unknown>,
): OperationsOf<Resources> {
  return Object.fromEntries(
    Object.entries(resources).map(([name, acts]) => [
      name,
      Object.fromEntries(
        Object.entries(acts).map(([verb, act]) => [verb, (given: never) => ask(act, given)]),
      ),
    ]),
  ) as OperationsOf<Resources>
}

/** Time limit for the connection, and for each wait for a part of the answer. */
const CONTROL_TIMEOUT_MS = 10_000
/** Bytes. A list of a million keys is smaller. */
const ANSWER_BYTES_MAX = 512 * 1024 * 1024

/**
 * Connects to the gateway of a data folder, or at `controlSocket`. Returns null if there is no
 * socket, or if no gateway answers at the socket. The operations throw ActRefused. Call `close` at
 * the end.
 */
export async function connectToGateway(
  dataFolder: string,
  controlSocket: string | null = null,
): Promise<Gateway | null> {
  const socketPath = controlSocket ?? (await readControlAddress(dataFolder))?.socket
  if (socketPath === undefined || !(await isAnswered(socketPath))) return null
  const dispatcher = openSocket(socketPath)
  const uid = uidOfUser()
  const gateway: GatewayOptions = {
    url: 'http://gateway',
    apiKey: null,
    timeoutMs: null,
    headers: uid === null ? {} : { [OPERATOR_UID_HEADER]: uid },
    fetch: ((input: string, init: object) => fetch(input, { ...init, dispatcher })) as Fetch,
  }
  const operations = bind<never, typeof GATEWAY_ACTS>(GATEWAY_ACTS, async (act, given) => {
    const { method, path, reply } = act
    const isInBody = method === 'POST' || method === 'PUT'
    const call = { method, bytesMax: ANSWER_BYTES_MAX, ...(isInBody ? { body: given } : {}) }
    const { status, bytes } = await callGateway(
      gateway,
      isInBody ? path : path + queryOf(given),
      call,
    ).catch((fault: unknown) => {
      throw fault instanceof NoAnswer ? new CliError(`the gateway: ${fault.message}`) : fault
    })
    if (status !== 200) throw refusalOf(bytes)
    const { data, error } = reply.safeParse(JSON.parse(new TextDecoder().decode(bytes)))
    if (error) throw new CliError(OTHER_VERSION)
    return data
  })
  return { ...operations, close: () => dispatcher.destroy() }
}

function openSocket(socketPath: string): Client {
  return new Client('http://gateway', {
    connect: { socketPath, timeout: CONTROL_TIMEOUT_MS },
    headersTimeout: CONTROL_TIMEOUT_MS,
    bodyTimeout: CONTROL_TIMEOUT_MS,
  })
}

const OTHER_VERSION =
  "the gateway's answer has another form: the gateway has another version than this program"

/** Null members are left out. */
function queryOf(given: Readonly<Record<string, unknown>>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(given))
    if (value !== null && value !== undefined) query.set(name, String(value))
  return `?${query}`
}

function refusalOf(bytes: Uint8Array): ActRefused {
  const { code, message } = errorWordsOf(bytes) ?? { code: null, message: OTHER_VERSION }
  return new ActRefused(code, code === 'internal_server_error' ? FAILED : message)
}

const FAILED = 'the gateway could not do this; see its log for the reason'
