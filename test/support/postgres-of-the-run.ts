import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { openDatabase } from '../../src/storage/database.ts'
import { type PostgresServer, startPostgres } from './postgres.ts'
import { KEEPER_VARIABLE } from './test-database.ts'

/**
 * One Postgres server for a whole run, started when the first test asks for a database and ended after the last. Set-up
 * and teardown of vitest.config.ts, in its main process; tests ask through `createTestDatabase`.
 */
export default async function keepPostgres(): Promise<() => Promise<void>> {
  let started: Promise<Cluster> | null = null
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    started ??= startCluster()
    const { server, template } = await started
    response.end(await server.createDatabase(request.url === '/empty' ? {} : { template }))
  }
  const keeper = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)))
  })
  keeper.listen(0, '127.0.0.1')
  await once(keeper, 'listening')
  process.env[KEEPER_VARIABLE] = `http://127.0.0.1:${(keeper.address() as AddressInfo).port}`
  return async () => {
    keeper.close()
    await (await started)?.server.stop()
  }
}

type Cluster = { readonly server: PostgresServer; readonly template: string }

/** Every worker has a few pools open at a time, and a test that failed may have left its own behind. */
const CONNECTIONS_MAX = '500'

async function startCluster(): Promise<Cluster> {
  const server = await startPostgres({ max_connections: CONNECTIONS_MAX })
  const database = await openDatabase({ url: server.url })
  await database.close()
  return { server, template: new URL(server.url).pathname.slice(1) }
}
