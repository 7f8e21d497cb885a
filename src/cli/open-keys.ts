import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { ControlError, connectToGateway } from '../control/client.ts'
import { createKeyOperations } from '../control/key-operations.ts'
import type { KeyOperations } from '../control/operations.ts'
import { StartFailure } from '../local/supervised-process.ts'
import { createApiKeys } from '../services/api-keys.ts'
import { startDatabase } from '../start/database.ts'
import { createKeysStore } from '../stores/keys.ts'
import type { CliConfig } from './config.ts'
import { CliError } from './exit-codes.ts'

/**
 * Runs something with the key operations: on the Postgres server that is configured, else through the gateway that runs on
 * the data folder, else in that folder's database itself. Throws CliError when none can be used.
 */
export async function withKeys<Result>(
  config: CliConfig,
  run: (keys: KeyOperations) => Promise<Result>,
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

async function withDatabase<Result>(
  { databaseUrl, dataFolder }: CliConfig,
  run: (keys: KeyOperations) => Promise<Result>,
): Promise<Result> {
  if (databaseUrl === null && !existsSync(dataFolder))
    throw new CliError(
      `there is no data folder ${dataFolder}: set DATA_DIR or DATABASE_URL, or start the gateway once`,
    )
  const database = await startDatabase({ url: databaseUrl, dataFolder }, { warn: () => undefined })
  try {
    const keys = createApiKeys({ keys: createKeysStore(database), now: Date.now, random: randomBytes })
    return await run(createKeyOperations(keys))
  } finally {
    await database.close()
  }
}
