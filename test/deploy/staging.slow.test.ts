import { X509Certificate } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Program } from '../support/deployment/program.ts'
import { connectRaw } from '../support/raw-http.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { runCli } from '../support/run-cli.ts'
import { type StagingParts, startStagingParts } from '../support/staging-parts.ts'
import { until } from '../support/until.ts'

const started = new AsyncDisposableStack()
afterAll(() => started.disposeAsync())

let parts: StagingParts
let gateway: Program

beforeAll(async () => {
  parts = await startStagingParts()
  started.defer(() => parts.stop())
  gateway = new Program({ file: 'src/main.ts', variables: parts.variables })
  gateway.start()
  started.defer(() => gateway.end('SIGTERM'))
  await until('it is ready', async () => (await ask('/readyz')).status === 200, 60_000).catch(
    (error: Error) => {
      throw new Error(`${error.message}\n${gateway.output.slice(-4_000)}`)
    },
  )
})

const ask = (path: string, headers: Readonly<Record<string, string>> = {}) =>
  fetch(`${parts.origin}${path}`, { headers }).catch(() => Response.error())

describe('a staging gateway', () => {
  it('a staging gateway says what it is in its log, at / and /readyz, and in the metrics', async () => {
    expect(gateway.output).toMatch(/"level":(40|"warn").*STAGING: the security module is simulated/)
    expect(await (await ask('/')).json()).toMatchObject({ staging: expect.any(String) })
    expect(await (await ask('/readyz')).json()).toMatchObject({ status: 'ready', staging: true })
    const samples = readMetrics(await (await fetch(parts.metricsUrl)).text())
    expect(samples.find(({ name }) => name === 'affidavit_staging')?.value).toBe(1)
  })

  it('every answer of a staging gateway says so in a header, refusals and errors too', async () => {
    for (const path of ['/', '/healthz', '/v1/models', '/v1/dashboard/me', '/nothing', '/docs'])
      expect(
        (await ask(path, { accept: 'text/html' })).headers.get('affidavit-staging'),
        path,
      ).toBe('true')
    const connection = await connectRaw(Number(new URL(parts.origin).port))
    connection.write('hello\r\n\r\n')
    expect(await connection.closed).toMatch(/^HTTP\/1\.1 400[\s\S]*affidavit-staging: true/)
  })

  it('the documents of a staging gateway have a root that nothing trusts unless it is told to', async () => {
    const file = join(parts.folder, 'attestation')
    const { attestation } = (await (await ask('/v1/attestation')).json()) as { attestation: string }
    await writeFile(file, attestation)
    const refused = await runCli(['attestation', file, '--any-measurement'])
    expect(refused.code).toBe(1)
    expect(refused.stdout).toMatch(/root/)
    const reported = await runCli([
      'attestation',
      file,
      '--any-measurement',
      '--root',
      parts.rootFile,
    ])
    expect(reported.stdout).toMatch(/VALID/)
    const root = new X509Certificate(await readFile(parts.rootFile))
    expect(root.subject).toMatch(/development root/)
  })
})

it('production refuses the enclave of a staging gateway without AFFIDAVIT_STAGING', async () => {
  await gateway.end('SIGTERM')
  gateway.start({ variables: { AFFIDAVIT_STAGING: '' } })
  await until('it is refused', () => /root_untrusted: is its security/.test(gateway.output), 60_000)
})
