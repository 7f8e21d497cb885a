import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'undici'
import { createAccounts } from '../accounts/accounts.ts'
import { createAdminLog } from '../accounts/admin-log-store.ts'
import { createBudgetsStore } from '../accounts/budgets-store.ts'
import { createKeysStore } from '../accounts/keys-store.ts'
import { readTiers } from '../accounts/limits/tiers.ts'
import { keysOver } from '../accounts/open-keys.ts'
import { createOperations } from '../accounts/operations.ts'
import { recordOperations } from '../accounts/recorded-operations.ts'
import { createUsageOperations, createUsageStore } from '../accounts/usage-store.ts'
import {
  CONTROL_FILE,
  CONTROL_OPERATIONS,
  type GatewayOperations,
  nameOperator,
  OPERATOR_UID_HEADER,
  type Operations,
  type Operator,
} from '../api/control-operations.ts'
import { StartFailure } from '../runtime/starting.ts'
import { admitContentKeys } from '../storage/content-keys-store.ts'
import { startDatabase } from '../storage/database.ts'
import { createErasureOperations } from '../verified/records/erasures.ts'
import { createErasuresStore } from '../verified/records/erasures-store.ts'
import { createContentOperations } from '../verified/records/reencryption-store.ts'
import { CliError } from './faults.ts'
import { type CliConfig, readCliConfig } from './operator/config.ts'

/**
 * Runs something with the operator's operations: on the Postgres server that is configured, else
 * through the gateway that runs on the data folder, else in that folder's database itself, which
 * is opened with the keys of stored content where these are needed. Throws CliError when none can
 * be used.
 */
export async function withOperations<Result>(
  run: (operations: Operations) => Promise<Result>,
  { needsContentKeys = false }: { readonly needsContentKeys?: boolean } = {},
): Promise<Result> {
  const { contentKeys, ...others } = readCliConfig()
  const config = { ...others, contentKeys: needsContentKeys ? contentKeys : null }
  try {
    const gateway = config.databaseUrl === null ? await connectToGateway(config.dataFolder) : null
    if (gateway === null) return await withDatabase(config, run)
    return await run(gateway).finally(() => gateway.close())
  } catch (error) {
    if (error instanceof ControlError || error instanceof StartFailure)
      throw new CliError(error.message)
    throw error
  }
}

/**
 * Runs something with the operations of the running gateway: the one of the control socket that is
 * configured, else of the data folder. Throws CliError when none runs there.
 */
export async function withGateway<Result>(
  run: (operations: GatewayOperations) => Promise<Result>,
): Promise<Result> {
  const { dataFolder, controlSocket } = readCliConfig()
  try {
    const gateway = await connectToGateway(dataFolder, controlSocket)
    if (gateway === null)
      throw new CliError(
        `no gateway answers at ${controlSocket ?? `the socket that ${dataFolder} names`}: set CONTROL_SOCKET or DATA_DIR as the gateway has them`,
      )
    return await run(gateway).finally(() => gateway.close())
  } catch (error) {
    if (error instanceof ControlError) throw new CliError(error.message)
    throw error
  }
}

/**
 * Brings the schema of a Postgres server to this version, and gives the names of the migrations
 * that ran. Several at once are one after the other. Throws CliError.
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
      if (migrated.length > 0) await createAdminLog(database).record(commandLine(), act)
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
  const tiers = tiersFile === null ? null : await readTiers(tiersFile)
  const place = { url: databaseUrl, dataFolder, contentKeys }
  const database = await startDatabase(place, { warn: () => undefined })
  try {
    const log = createAdminLog(database)
    if (contentKeys !== null) {
      const key = await admitContentKeys(database, { warn: () => undefined })
      if (key !== null) await log.record(commandLine(), { kind: 'content.use_key', target: key })
    }
    const operations = recordOperations({
      database,
      log,
      make(inside) {
        const keys = createKeysStore(inside)
        const accounts = createAccounts({
          keys,
          tiers: tiers && (() => [...tiers.byName.keys()]),
          now: Date.now,
        })
        return {
          ...createOperations({ keys: keysOver(keys), accounts }),
          budgets: createBudgetsStore(inside),
          usage: createUsageOperations(createUsageStore(inside)),
          ...createErasureOperations(createErasuresStore(inside)),
          content: createContentOperations(database),
        }
      },
    })
    return await run(operations(commandLine()))
  } finally {
    await database.close()
  }
}

/** The user who runs the command. */
function commandLine(): Operator {
  return { who: nameOperator(uidOfUser()), accountId: null, from: 'command line' }
}

/** Null on a system that has no such ids. */
function uidOfUser(): string | null {
  return process.getuid === undefined ? null : String(process.getuid())
}

/** Longest that a running gateway may take, milliseconds. */
const CONTROL_TIMEOUT_MS = 10_000

/** The running gateway refused or failed; the message is what it said. */
export class ControlError extends Error {
  override readonly name = 'ControlError'
}

/** Operations through a running gateway; `close` when done. */
type RemoteOperations = GatewayOperations & { close(): Promise<void> }

/**
 * Gives the operations of the gateway that runs on a data folder, or that listens at
 * `controlSocket`, or null when none does (the address is missing, or it does not answer there: it
 * was killed).
 */
export async function connectToGateway(
  dataFolder: string,
  controlSocket: string | null = null,
): Promise<RemoteOperations | null> {
  const socketPath = controlSocket ?? (await readAddress(dataFolder))
  if (socketPath === null) return null
  const client = new Client('http://gateway', {
    connect: { socketPath, timeout: CONTROL_TIMEOUT_MS },
    headersTimeout: CONTROL_TIMEOUT_MS,
    bodyTimeout: CONTROL_TIMEOUT_MS,
  })
  const operations = operationsThrough(client)
  try {
    await operations.keys.list()
  } catch (error) {
    await client.destroy()
    if (error instanceof ControlError) throw error
    return null
  }
  return { ...operations, close: () => client.destroy() }
}

/** Every operation as a request, by the table that the gateway answers by. */
function operationsThrough(client: Client): GatewayOperations {
  return Object.fromEntries(
    Object.entries(CONTROL_OPERATIONS).map(([resource, operations]) => [
      resource,
      Object.fromEntries(
        Object.entries(operations).map(([verb, { method, result }]) => [
          verb,
          async (order?: unknown) => {
            const { data, error } = result.safeParse(
              await send(client, { method, path: `/${resource}`, order }),
            )
            if (error)
              throw new ControlError(
                "the gateway's answer has another form: the gateway has another version than this program",
              )
            return data
          },
        ]),
      ),
    ]),
  ) as GatewayOperations
}

async function readAddress(dataFolder: string): Promise<string | null> {
  try {
    const { socket } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    return typeof socket === 'string' ? socket : null
  } catch {
    return null
  }
}

async function send(
  client: Client,
  {
    method,
    path,
    order,
  }: { readonly method: string; readonly path: string; readonly order: unknown },
): Promise<unknown> {
  const body = order === undefined ? null : JSON.stringify(order)
  const uid = uidOfUser()
  const headers = uid === null ? {} : { [OPERATOR_UID_HEADER]: uid }
  const reply = await client.request({ method, path, body, headers })
  const value: unknown = await reply.body.json()
  if (reply.statusCode === 200) return value
  const { message } = value as { readonly message?: unknown }
  throw new ControlError(typeof message === 'string' ? message : `status ${reply.statusCode}`)
}
