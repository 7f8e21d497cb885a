/** The address of run-keeper.ts, where tests get what the run shares. */
export const KEEPER_VARIABLE = 'AFFIDAVIT_TEST_POSTGRES'

/**
 * Makes a database on the run's Postgres server and gives its connection string. It is migrated,
 * unless `empty`. A test that kills its server, or needs other settings, starts a separate one
 * (postgres.ts).
 */
export async function createTestDatabase(
  options: { readonly empty?: boolean } = {},
): Promise<string> {
  const keeper = process.env[KEEPER_VARIABLE]
  if (keeper === undefined)
    throw new Error(`expected ${KEEPER_VARIABLE}, as vitest.config.ts sets it`)
  const reply = await fetch(`${keeper}/database${options.empty === true ? '/empty' : ''}`)
  const text = await reply.text()
  if (!reply.ok) throw new Error(`the run's Postgres server gives no database: ${text}`)
  return text
}
