import type { Command } from 'commander'
import { CliError } from '../faults.ts'
import { operations } from './operator.ts'

/** A gateway also migrates its database when it starts. */
export function registerMigrate(program: Command): void {
  program
    .command('migrate')
    .description(
      'migrate the database of DATABASE_URL to the schema of this version, as a gateway does when it starts',
    )
    .action(migrate)
}

async function migrate(): Promise<void> {
  const { readCliConfig } = await import('../operator/config.ts')
  const { databaseUrl, dataFolder } = readCliConfig()
  if (databaseUrl === null)
    throw new CliError('expected DATABASE_URL: a gateway migrates its embedded database itself')
  const names = await (await operations()).migrateDatabase({ databaseUrl, dataFolder })
  const text =
    names.length === 0
      ? 'The schema is current: there was nothing to do.'
      : `Ran ${names.length} migrations: ${names.join(', ')}`
  process.stdout.write(`${text}\n`)
}
