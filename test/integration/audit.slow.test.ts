import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { listTree, nameProcess } from '../bench/processes.ts'
import { type Affidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'
import { complete } from '../support/completions.ts'
import { runCli } from '../support/run-cli.ts'

const CALLS = 30

let service: Affidavit
let folder = ''
let hash = ''
/** The boot configuration and the measurements that the auditor read and approved. */
let expected: readonly string[]

const ask = async (text: string) => (await complete(service, text)).hash

const cli = (...words: readonly string[]) =>
  runCli(words, { variables: { AFFIDAVIT_URL: service.url, AFFIDAVIT_API_KEY: service.apiKey } })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-audit-'))
  await rename(await makeDataFolder(), join(folder, 'data'))
  service = await startAffidavit({
    dataFolder: join(folder, 'data'),
    variables: { HEAD_ATTESTATION_INTERVAL_MS: '1000' },
  })
  const hashes = await Promise.all(Array.from({ length: CALLS }, (_, at) => ask(`question ${at}`)))
  hash = hashes[0] ?? ''
  const { attestation, boot_configuration: configuration } = (await (
    await fetch(`${service.url}/v1/attestation`)
  ).json()) as {
    attestation: string
    boot_configuration: object
  }
  const [document, boot] = [join(folder, 'document'), join(folder, 'configuration.json')]
  await writeFile(document, attestation)
  await writeFile(boot, JSON.stringify(configuration))
  const shown = await cli(
    'attestation',
    document,
    '--historical',
    '--any-measurement',
    '--root',
    service.rootFile,
    '--json',
  )
  const { measurements } = JSON.parse(shown.stdout).facts
  const pcrs = [0, 1, 2].flatMap((index) => ['--pcr', `${index}=${measurements[index]}`])
  expected = ['--root', service.rootFile, ...pcrs, '--configuration', boot]
})
afterAll(async () => {
  await service.stop()
  await rm(folder, { recursive: true, force: true })
})

describe('the command line, against a whole service', () => {
  it('the command line fetches evidence, verifies it with the chain, and redacts it', async () => {
    const file = join(folder, 'bundle.json')
    await expect
      .poll(async () => (await cli('evidence', hash, '--output', file)).stderr, {
        timeout: 20_000,
        interval: 500,
      })
      .toBe('')
    const verified = await cli('verify', file, ...expected, '--rpc', service.rpcUrl)
    expect(verified).toMatchObject({ code: 0, stdout: expect.stringContaining('VERIFIED') })
    const fetched = await cli('verify', hash, ...expected)
    expect(fetched).toMatchObject({ code: 0, stdout: expect.stringContaining('VERIFIED') })
    const redacted = join(folder, 'redacted.json')
    expect((await cli('redact', file, '--request', '--response', '--output', redacted)).code).toBe(
      0,
    )
    expect(await readFile(redacted, 'utf8')).not.toContain('question 0')
    const rest = await cli('verify', redacted, ...expected, '--rpc', service.rpcUrl)
    expect(rest).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('INCOMPLETE: nothing failed'),
    })
  })

  it('the command line audits the log, its anchors, attestations and records, and finds nothing', async () => {
    const state = join(folder, 'state.json')
    const words = [
      'audit',
      service.url,
      ...expected,
      '--rpc',
      service.rpcUrl,
      '--state',
      state,
      '--json',
    ]
    const first = JSON.parse((await cli(...words)).stdout)
    expect(first).toMatchObject({
      ok: true,
      findings: [],
      logs: [{ size: CALLS, to: CALLS, findings: [] }],
    })
    const open = first.logs[0].checks.filter(
      ({ outcome }: { outcome: string }) => outcome !== 'passed',
    )
    // The newest anchor may still be under way. Requests without a nonce are not compared.
    expect(
      open
        .map(({ name }: { name: string }) => name)
        .filter((name: string) => name !== 'anchors on chain'),
    ).toEqual(['requests in one log'])
    await Promise.all(Array.from({ length: 5 }, (_, at) => ask(`later ${at}`)))
    const second = JSON.parse((await cli(...words)).stdout)
    expect(second).toMatchObject({
      ok: true,
      logs: [{ from: CALLS, to: CALLS + 5, complete: true }],
    })
  })

  it('the command line audits the logs of all enclaves of a service, also of a killed one', async () => {
    const enclave = listTree(service.pid).find((pid) => nameProcess(pid) === 'enclave/main.ts')
    if (enclave === undefined) throw new Error('no enclave among the processes')
    process.kill(enclave, 'SIGKILL')
    await expect
      .poll(() => ask('of the next enclave').catch(() => ''), { timeout: 30_000 })
      .not.toBe('')
    const { code, stdout } = await cli(
      'audit',
      service.url,
      ...expected,
      '--rpc',
      service.rpcUrl,
      '--json',
    )
    const { logs, findings, checks } = JSON.parse(stdout)
    expect({ code, findings, sizes: logs.map(({ size }: { size: number }) => size) }).toEqual({
      code: 0,
      findings: [],
      sizes: [expect.any(Number), CALLS + 5],
    })
    // The killed enclave's log was shown to the next enclave, and one relayer paid for both.
    expect(checks.map(({ name, outcome }: Record<string, string>) => [name, outcome])).toEqual([
      ['logs in the contract', 'passed'],
      ['earlier logs', 'passed'],
      ['transactions of relayers', 'passed'],
    ])
  })

  it('the audit finds nothing after the whole service, with its chain, was started again', async () => {
    await service.stop()
    service = await startAffidavit({
      dataFolder: join(folder, 'data'),
      variables: { HEAD_ATTESTATION_INTERVAL_MS: '1000' },
    })
    expect(await ask('after the start')).not.toBe('')
    // Without the configuration: it names the demo provider's port, which differs at each start.
    const demands = expected.slice(0, expected.indexOf('--configuration'))
    const { code, stdout } = await cli(
      'audit',
      service.url,
      ...demands,
      '--rpc',
      service.rpcUrl,
      '--json',
    )
    const { logs, findings } = JSON.parse(stdout)
    const all = [
      ...findings,
      ...logs.flatMap((log: { readonly findings: readonly unknown[] }) => log.findings),
    ]
    expect({ code, findings: all, logs: logs.length }).toEqual({ code: 0, findings: [], logs: 3 })
  })
})
