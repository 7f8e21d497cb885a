import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { awaitFreePort } from '#src/local/free-port.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { needProgram } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { listQueries, RULES } from './queries.ts'

const PROMETHEUS = needProgram('prometheus')

/**
 * Panels that rightly have nothing to show here: a gateway that is alone has no bus, its provider
 * keeps its key, and its account has no limits.
 */
const EMPTY_HERE = [
  'panel Bus',
  // Its second query counts refused streams of providers.
  'panel Inferences by provider and end',
  'panel New TLS keys of attested providers',
  'panel Refused by limits',
]

describe.runIf(PROMETHEUS.isMet)(
  PROMETHEUS.title('a Prometheus that collects from a gateway'),
  () => {
    let affidavit: Affidavit
    let prometheus: ChildProcess
    let folder: string
    let base: string
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'affidavit-prometheus-'))
      affidavit = await startAffidavit({ variables: { METRICS_PORT: '0' } })
      const port = await awaitFreePort(0)
      base = `http://127.0.0.1:${port}`
      const config = {
        global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
        rule_files: [RULES],
        scrape_configs: [
          {
            job_name: 'affidavit',
            static_configs: [{ targets: [new URL(affidavit.metricsUrl).host] }],
          },
        ],
      }
      const file = join(folder, 'prometheus.yml')
      await writeFile(file, stringify(config))
      prometheus = spawn(
        'prometheus',
        [
          `--config.file=${file}`,
          `--storage.tsdb.path=${join(folder, 'data')}`,
          `--web.listen-address=127.0.0.1:${port}`,
        ],
        { stdio: 'ignore' },
      )
      await until('it collects', async () => (await ask('up == 1')).length === 1, 60_000)
    })
    afterAll(async () => {
      if (prometheus.exitCode === null && prometheus.kill('SIGKILL')) await once(prometheus, 'exit')
      await affidavit.stop()
      await affidavit.remove()
      await rm(folder, { recursive: true, force: true })
    })

    async function get(path: string): Promise<ReturnType<typeof JSON.parse>> {
      const reply = await fetch(base + path).catch(() => null)
      // It is not ready at once, and says so in plain text.
      return reply === null || reply.status === 503 ? { status: 'away' } : reply.json()
    }

    /** The samples that a query gives now. Throws what Prometheus says of one that it refuses. */
    async function ask(query: string): Promise<readonly unknown[]> {
      const { status, data, error } = await get(`/api/v1/query?query=${encodeURIComponent(query)}`)
      if (status === 'away') return []
      if (status !== 'success') throw new Error(`${query}: ${error}`)
      return data.result
    }

    async function call(path: string, body: object): Promise<number> {
      const reply = await fetch(affidavit.url + path, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${affidavit.apiKey}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify(body),
      })
      await reply.text()
      return reply.status
    }

    it('a real Prometheus takes every rule, and no alert fires on a healthy gateway', async () => {
      const evaluated = async () => {
        const { data } = await get('/api/v1/rules')
        return data.groups.flatMap(({ rules }: { rules: object[] }) => rules) as readonly {
          readonly name: string
          readonly health: string
          readonly state: string
        }[]
      }
      await until('all are evaluated', async () =>
        (await evaluated()).every(({ health }) => health === 'ok'),
      )
      const rules = await evaluated()
      expect(rules.length).toBeGreaterThan(20)
      expect(rules.filter(({ state }) => state !== 'inactive')).toEqual([])
    })

    it('every query is answered, and every panel shows something, but for those known as empty here', async () => {
      const messages = [{ role: 'user', content: 'Hello' }]
      const load = async () => {
        const verified = '/v1/verified/chat/completions'
        expect(await call(verified, { model: 'demo/echo', messages })).toBe(200)
        expect(await call(verified, { model: 'demo/echo', messages, stream: true })).toBe(200)
        expect(await call('/v1/chat/completions', { model: 'demo/echo', messages })).toBe(200)
        expect(await call(verified, { model: 'none/of-these', messages })).toBeGreaterThan(399)
      }
      const queries = await listQueries()
      let empty: readonly string[] = []
      await until(
        'every panel shows something',
        async () => {
          await load()
          const answers = await Promise.all(
            queries.map(async (query) => ({ ...query, samples: await ask(query.query) })),
          )
          empty = answers
            .filter(({ where, samples }) => where.startsWith('panel') && samples.length === 0)
            .map(({ where }) => where)
          return empty.every((where) => EMPTY_HERE.includes(where))
        },
        60_000,
      ).catch((error: Error) => {
        throw new Error(`${error.message}: ${empty.join(', ')}`)
      })
      expect(new Set(empty)).toEqual(new Set(EMPTY_HERE))
    })

    it('a real Prometheus refuses a malformed query', async () => {
      await expect(ask('sum by (affidavit_staging')).rejects.toThrow('parse error')
    })
  },
)
