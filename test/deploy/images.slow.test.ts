import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Copy, DockerfileParser } from 'dockerfile-ast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { listImports, targetOf } from '../house/import-rules.ts'
import { childEnvironment } from '../support/child-environment.ts'
import { runProgram } from '../support/run-cli.ts'
import { startStagingParts } from '../support/staging-parts.ts'
import { until } from '../support/until.ts'

const root = join(import.meta.dirname, '../..')

type Step = { readonly keyword: string; readonly words: readonly string[]; readonly text: string }

/** The steps of a Dockerfile; those of COPY are without the ones from an earlier stage. */
function readSteps(folder: string): readonly Step[] {
  const text = readFileSync(join(root, folder, 'Dockerfile'), 'utf8')
  return DockerfileParser.parse(text)
    .getInstructions()
    .filter((step) => !(step instanceof Copy && step.getFromFlag() !== null))
    .map((step) => ({
      keyword: step.getKeyword(),
      words: step.getArguments().map((argument) => argument.getValue()),
      text: step.getArgumentsContent() ?? '',
    }))
}

const stepsOf = (steps: readonly Step[], keyword: string) =>
  steps.filter((step) => step.keyword === keyword)

/** What COPY takes of the sources. */
function copiedOf(steps: readonly Step[]): readonly string[] {
  return stepsOf(steps, 'COPY').flatMap(({ words }) => words.slice(0, -1))
}

/** Every file that the program loads, itself included, wherever it is imported. */
function closureOf(entry: string): ReadonlySet<string> {
  const found = new Set<string>()
  const wanted = [entry]
  for (let file = wanted.pop(); file !== undefined; file = wanted.pop()) {
    if (found.has(file) || !/\.tsx?$/.test(file)) continue
    found.add(file)
    const imports = listImports(file, readFileSync(join(root, file), 'utf8'))
    wanted.push(...imports.flatMap((entry) => (entry.typeOnly ? [] : targetOf(file, entry))))
  }
  return found
}

const IMAGES = [
  { folder: 'deploy/gateway', entry: 'src/main.ts' },
  { folder: 'deploy/agent', entry: 'src/agent/main.ts' },
]

describe.each(IMAGES)('the image of $folder', ({ folder, entry }) => {
  const steps = readSteps(folder)
  const copied = copiedOf(steps)

  it('the image copies only paths that exist and that its .dockerignore lets through', () => {
    const allowed = readFileSync(join(root, folder, 'Dockerfile.dockerignore'), 'utf8').match(
      /(?<=^!).*$/gm,
    )
    expect(copied.length).toBeGreaterThan(4)
    for (const path of copied) {
      expect(existsSync(join(root, path)), path).toBe(true)
      expect(allowed).toContain(path)
    }
  })

  it('the image has every file that its program loads', () => {
    const closure = [...closureOf(entry)]
    expect(closure.length).toBeGreaterThan(20)
    const has = (file: string) =>
      copied.some((path) => file === path || file.startsWith(`${path}/`))
    // Parts for development, which production refuses before it would load them.
    const lacking = closure.filter((file) => !has(file) && !/^enclave\//.test(file))
    expect(lacking).toEqual([])
  })

  it('the image runs its program by node, as a user that is not root, and is stopped by SIGTERM', () => {
    expect(stepsOf(steps, 'USER').map(({ text }) => text)).toEqual(['10002:10002'])
    expect(stepsOf(steps, 'STOPSIGNAL').map(({ text }) => text)).toEqual(['SIGTERM'])
    expect(stepsOf(steps, 'HEALTHCHECK')).toHaveLength(1)
    expect(JSON.parse(stepsOf(steps, 'CMD')[0]?.text ?? '')).toEqual(['node', entry])
  })

  it('the image takes a base image by its digest and refuses another name', () => {
    const [check] = stepsOf(steps, 'RUN')
    const run = (NODE_IMAGE: string) =>
      execFileSync('/bin/sh', ['-euc', check?.text ?? ''], { env: { NODE_IMAGE }, stdio: 'pipe' })
    expect(() => run(`node@sha256:${'a'.repeat(64)}`)).not.toThrow()
    expect(() => run('node:24-slim')).toThrow(/expected an image by its digest/)
  })
})

describe("the images' steps, by hand", () => {
  let image: string
  beforeAll(async () => {
    image = await mkdtemp(join(tmpdir(), 'affidavit-built-'))
    const steps = readSteps('deploy/gateway')
    for (const path of copiedOf(steps)) {
      await mkdir(dirname(join(image, path)), { recursive: true })
      await cp(join(root, path), join(image, path), { recursive: true })
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
