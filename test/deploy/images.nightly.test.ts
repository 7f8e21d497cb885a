import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { childEnvironment } from '../support/child-environment.ts'
import { runProgram } from '../support/run-cli.ts'
import { startStagingParts } from '../support/staging-parts.ts'
import { until } from '../support/until.ts'
import { copiedOf, ROOT, readSteps, stepsOf } from './dockerfile.ts'

describe("the images' steps, by hand", () => {
  let image: string
  beforeAll(async () => {
    image = await mkdtemp(join(tmpdir(), 'affidavit-built-'))
    const steps = readSteps('deploy/gateway')
    for (const path of copiedOf(steps)) {
      await mkdir(dirname(join(image, path)), { recursive: true })
      await cp(join(ROOT, path), join(image, path), { recursive: true })
    }
    const [, install] = stepsOf(steps, 'RUN')
    expect(install?.text).toMatch(/npm install --omit=dev/)
    // The agent's are the same ones.
    expect(stepsOf(readSteps('deploy/agent'), 'RUN')[1]?.text).toBe(install?.text)
    // Its own cache: the step empties it.
    const env = { ...process.env, npm_config_cache: join(image, 'npm-cache') }
    const shell = spawn('/bin/sh', ['-euc', install?.text ?? ''], {
      cwd: image,
      env,
      stdio: 'pipe',
    })
    let output = ''
    for (const pipe of [shell.stdout, shell.stderr])
      pipe.setEncoding('utf8').on('data', (text: string) => {
        output += text
      })
    const [code] = await once(shell, 'close')
    expect(code, output).toBe(0)
  }, 300_000)
  afterAll(() => rm(image, { recursive: true, force: true }))

  it('the install step brings what production needs and nothing for development', async () => {
    const packages = await readdir(join(image, 'node_modules'))
    expect(packages).toEqual(expect.arrayContaining(['koa', 'pg', 'undici', 'zod']))
    for (const name of ['vitest', 'typescript', 'playwright-core', '@foundry-rs', '@electric-sql'])
      expect(packages).not.toContain(name)
  })

  it('the gateway of the image serves and is healthy by the check of its image', async () => {
    const parts = await startStagingParts()
    const [command = '', ...words] = JSON.parse(
      stepsOf(readSteps('deploy/gateway'), 'CMD')[0]?.text ?? '',
    )
    expect(command).toBe('node')
    const gateway = spawn(process.execPath, words, {
      cwd: image,
      env: { ...childEnvironment(), ...parts.variables, DATA_DIR: join(image, 'data') },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let output = ''
    gateway.stderr.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    try {
      const statusOf = async (path: string) =>
        fetch(parts.origin + path).then(
          ({ status }) => status,
          () => 0,
        )
      await until('it serves', async () => (await statusOf('/healthz')) === 200, 60_000).catch(
        (error: Error) => {
          throw new Error(`${error.message}\n${output}`)
        },
      )
      await until('it is ready', async () => (await statusOf('/readyz')) === 200, 60_000)
      const [check] = stepsOf(readSteps('deploy/gateway'), 'HEALTHCHECK')
      const [, script = ''] = /"-e", "(.*)"\]/.exec(check?.text ?? '') ?? []
      const here = (origin: string) => script.replace('http://127.0.0.1:3000', origin)
      const healthy = (origin: string) =>
        execFileSync(process.execPath, ['-e', here(origin)], { stdio: 'pipe' })
      expect(script).toContain('/healthz')
      expect(() => healthy(parts.origin)).not.toThrow()
      expect(() => healthy('http://127.0.0.1:1')).toThrow()
      const left = once(gateway, 'exit')
      gateway.kill('SIGTERM')
      expect((await left)[0]).toBe(0)
    } finally {
      gateway.kill('SIGKILL')
      await parts.stop()
    }
  })

  it('the agent of the image loads and says what it lacks', async () => {
    const { code, stderr } = await runProgram(join(image, 'src/agent/main.ts'), [])
    expect(code).toBe(1)
    expect(stderr).toMatch(/AFFIDAVIT_API_KEY: expected an API key/)
    expect(stderr).toMatch(/NODE_ID: expected the id of the node/)
  })
})
