import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { createAccounts } from '../accounts/accounts.ts'
import { createApiKeys } from '../accounts/api-keys.ts'
import { createKeysStore } from '../accounts/keys-store.ts'
import { readTiers } from '../accounts/limits/tiers.ts'
import { createOperations } from '../accounts/operations.ts'
import type { GatewayOperations, Operations } from '../api/control-operations.ts'
import { StartFailure } from '../runtime/starting.ts'
import { startDatabase } from '../storage/database.ts'
import type { CliConfig } from './config.ts'
import { ControlError, connectToGateway } from './control-client.ts'
import { CliError } from './exit-codes.ts'

/**
 * Runs something with the operator's operations: on the Postgres server that is configured, else through the gateway that runs on
 * the data folder, else in that folder's database itself. Throws CliError when none can be used.
 */
export async function withOperations<Result>(
  config: CliConfig,
  run: (operations: Operations) => Promise<Result>,
): Promise<Result> {
  try {
    const gateway = config.databaseUrl === null ? await connectToGateway(config.dataFolder) : null
    if (gateway === null) return await withDatabase(config, run)
    return await run(gateway).finally(() => gateway.close())
  } catch (error) {
    if (error instanceof ControlError || error instanceof StartFailure) throw new CliError(error.message)
    throw error
  }
}

/**
 * Runs something with the operations of the running gateway: the one of the control socket that is configured, else of the data
 * folder. Throws CliError when none runs there.
 */
export async function withGateway<Result>(
  { dataFolder, controlSocket }: CliConfig,
  run: (operations: GatewayOperations) => Promise<Result>,
): Promise<Result> {
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
