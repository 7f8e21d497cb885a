import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'undici'
import { createAccounts } from '../accounts/accounts.ts'
import { createApiKeys } from '../accounts/api-keys.ts'
import { createKeysStore } from '../accounts/keys-store.ts'
import { readTiers } from '../accounts/limits/tiers.ts'
import { createOperations } from '../accounts/operations.ts'
import {
  CONTROL_FILE,
  CONTROL_OPERATIONS,
  type GatewayOperations,
  type Operations,
} from '../api/control-operations.ts'
import { StartFailure } from '../runtime/starting.ts'
import { startDatabase } from '../storage/database.ts'
import { type CliConfig, readCliConfig } from './config.ts'
import { CliError } from './faults.ts'

/**
 * Runs something with the operator's operations: on the Postgres server that is configured, else
 * through the gateway that runs on the data folder, else in that folder's database itself. Throws
 * CliError when none can be used.
 */
export async function withOperations<Result>(
  run: (operations: Operations) => Promise<Result>,
): Promise<Result> {
  const config = readCliConfig()
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
        `no gateway answers at ${controlSocket ?? `the socket that ${dataFolder} names`}: set CONTROL_SOCKET or DATA_DIR as it has them`,
      )
    return await run(gateway).finally(() => gateway.close())
  } catch (error) {
    if (error instanceof ControlError) throw new CliError(error.message)
    throw error
  }
}

async function withDatabase<Result>(
  { databaseUrl, dataFolder, tiersFile }: CliConfig,
  run: (operations: Operations) => Promise<Result>,
): Promise<Result> {
  if (databaseUrl === null && !existsSync(dataFolder))
    throw new CliError(
      `there is no data folder ${dataFolder}: set DATA_DIR or DATABASE_URL, or start the gateway once`,
    )
  const tierNames = tiersFile === null ? null : [...(await readTiers(tiersFile)).byName.keys()]
  const database = await startDatabase({ url: databaseUrl, dataFolder }, { warn: () => undefined })
  try {
    const store = createKeysStore(database)
    const keys = createApiKeys({ keys: store, now: Date.now, random: randomBytes })
    const accounts = createAccounts({ keys: store, tiers: tierNames, now: Date.now })
    return await run(createOperations({ keys, accounts }))
  } finally {
    await database.close()
  }
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
 * `controlSocket`, or null when none does (there is no address, or nobody answers there: it was
 * killed).
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
                'the gateway answers in another form: it is of another version',
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
  const reply = await client.request({ method, path, body })
  const value: unknown = await reply.body.json()
  if (reply.statusCode === 200) return value
  const { message } = value as { readonly message?: unknown }
  throw new ControlError(typeof message === 'string' ? message : `status ${reply.statusCode}`)
}
