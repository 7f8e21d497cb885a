import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '#src/storage/database.ts'
import { type Affidavit, startAffidavit } from './affidavit.ts'
import { type PostgresServer, startPostgres } from './postgres.ts'
import { KEEPER_VARIABLE } from './test-database.ts'

/** Prices of the demonstration's models, so that pages have amounts to show. */
const PRICES_FILE = fileURLToPath(new URL('prices.json', import.meta.url))

/**
 * What a whole run shares: one Postgres server (`createTestDatabase`), and one service for each
 * worker (`useAffidavit`). Each is started when a test first needs it, and ended after the last.
 * Set-up and teardown of vitest.config.ts, in its main process.
 */
export default async function keepForRun(): Promise<() => Promise<void>> {
  let cluster: Promise<Cluster> | null = null
  const services = new Map<string, Promise<Affidavit>>()
  const answers: Readonly<Record<string, () => Promise<string>>> = {
    '/database': async () => {
      cluster ??= startCluster()
      const { server, template } = await cluster
      return server.createDatabase({ template })
    },
    '/database/empty': async () => {
      cluster ??= startCluster()
      return (await cluster).server.createDatabase()
    },
  }
  const openService = async (path: string) => {
    let service = services.get(path)
    service ??= startAffidavit({ logLevel: 'warn', variables: { PRICES_FILE } })
    services.set(path, service)
    return JSON.stringify(await service)
  }
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const url = request.url ?? ''
    response.end(url.startsWith('/service/') ? await openService(url) : await answers[url]?.())
  }
  const keeper = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)))
  })
  keeper.listen(0, '127.0.0.1')
  await once(keeper, 'listening')
  process.env[KEEPER_VARIABLE] = `http://127.0.0.1:${(keeper.address() as AddressInfo).port}`
  shareCompiledCode()
  return async () => {
    keeper.close()
    for (const service of services.values()) await (await service).stop()
    await (await cluster)?.server.stop()
  }
}

type Cluster = { readonly server: PostgresServer; readonly template: string }

/**
 * Every worker has a few open pools at a time, and a test that failed may have left its own. The
 * server has a database for each file: nothing there is worth a vacuum, and none outlives a crash.
 */
const CLUSTER = {
  max_connections: '500',
  autovacuum: 'off',
  full_page_writes: 'off',
  jit: 'off',
}

async function startCluster(): Promise<Cluster> {
  const server = await startPostgres(CLUSTER)
  const database = await openDatabase({ url: server.url })
  await database.close()
  return { server, template: new URL(server.url).pathname.slice(1) }
}

/**
 * Processes that tests start load the same modules: with compiled code they start in two thirds of
 * the time.
 */
function shareCompiledCode(): void {
  const folder = path.join(import.meta.dirname, '../../node_modules/.cache/affidavit/compiled')
  mkdirSync(folder, { recursive: true })
  process.env.NODE_COMPILE_CACHE ??= folder
}
