import { expect, it } from 'vitest'
import { getPath, VERIFIED_PATH } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway } from '../../support/gateway.ts'
import { startPostgres } from '../../support/postgres.ts'
import { until } from '../../support/until.ts'

it(
  'routes answer 503 while Postgres is away, with the time of the next try and nothing else, and serve once it is back',
  async () => {
    const fixedKey = 'a key of the development'.replaceAll(' ', '-')
    const postgres = await startPostgres()
    const away = await startGateway({ postgres, fixedKey })
    const get = (path: string) => getPath({ ...away, key: fixedKey }, path)
    await postgres.kill()
    // Backends outlive the killed server for a moment, and still answer.
    const isAway = async () => (await get('/v1/network/stats')).status === 503
    await until('Postgres is away', isAway)
    const paths = ['/v1/log', VERIFIED_PATH, '/v1/dashboard/keys', '/v1/network/stats']
    // Connections of the pool may still be about to break: a query that fails on them has the
    // same answer.
    for (const path of [...paths, ...paths, ...paths]) {
      const reply = await get(path)
      expect([path, reply.status, reply.headers.get('retry-after')]).toEqual([path, 503, '1'])
      const { error } = JSON.parse(await reply.text())
      expect(error.code).toBe('not_ready')
      expect(error.message).not.toMatch(/ECONN|terminated|127\.0\.0\.1/)
    }
    expect(away.logLines.join()).not.toContain('unexpected error')
    const cause = expect.objectContaining({ code: 'ECONNREFUSED' })
    expect(away.logLines.map((line) => JSON.parse(line).err)).toContainEqual(
      expect.objectContaining({ type: 'DatabaseAwayError', cause }),
    )
    await postgres.restart()
    for (const path of paths)
      await expect.poll(async () => [path, (await get(path)).status]).toEqual([path, 200])
    await away.stop().catch(() => {})
    await postgres.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
