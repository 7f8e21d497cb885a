import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { parseRoots } from '#attestation/nitro/policy.ts'
import { readManifest, VECTORS } from '../conformance/manifest.ts'
import {
  type PackageRegistry,
  packProgram,
  startPackageRegistry,
} from '../support/package-registry.ts'

const ACTION = join(import.meta.dirname, '../../deploy/action')
const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')

const action = parse(readFileSync(join(ACTION, 'action.yml'), 'utf8'))
const inputs = action.inputs as Readonly<Record<string, Readonly<Record<string, string>>>>
const outputs = action.outputs as Readonly<Record<string, Readonly<Record<string, string>>>>
const { using, steps } = action.runs as { readonly using: string; readonly steps: readonly Step[] }
type Step = {
  readonly id: string
  readonly shell: string
  readonly run: string
  readonly env: Readonly<Record<string, string>>
}

describe('action.yml', () => {
  it('action.yml is the metadata of a composite action', () => {
    expect(Object.keys(action).sort()).toEqual(
      ['author', 'branding', 'description', 'inputs', 'name', 'outputs', 'runs'].sort(),
    )
    expect(using).toBe('composite')
    for (const input of Object.values(inputs)) {
      expect(Object.keys(input).sort()).toEqual(['default', 'description', 'required'])
      expect(input.required).toBe(false)
    }
    for (const [name, output] of Object.entries(outputs))
      expect(output).toEqual({
        description: expect.any(String),
        value: `\${{ steps.check.outputs.${name} }}`,
      })
    for (const step of steps) {
      expect(Object.keys(step).sort()).toEqual(['env', 'id', 'run', 'shell'])
      expect(step.shell).toBe('bash')
    }
  })

  it('action.yml has no expression in the text of a script, since its value would be run', () => {
    for (const { run } of steps) expect(run).toMatch(/^node "\$GITHUB_ACTION_PATH\/\w+\.mjs"$/)
  })

  it('action.yml gives every input to one step, by the environment alone', () => {
    const given = steps.flatMap(({ env }) => Object.entries(env))
    const expected = Object.keys(inputs).map((name) => [
      `INPUT_${name.toUpperCase().replaceAll('-', '_')}`,
      `\${{ inputs.${name} }}`,
    ])
    const program = ['AFFIDAVIT_PROGRAM', `\${{ steps.install.outputs.program }}`]
    expect(given.toSorted()).toEqual([...expected, program].toSorted())
  })
})

type Ended = {
  readonly code: number | null
  readonly printed: string
  readonly outputs: Readonly<Record<string, string>>
  readonly summary: string
}

const { cases } = readManifest()
const caseOf = (name: string) => {
  const found = cases.find((one) => one.name === name)
  if (found === undefined) throw new Error(`expected a case ${name}`)
  const { demands } = found
  const fileOf = (path: string) => join(VECTORS, path)
  return {
    bundle: fileOf(found.source),
    root: (demands.roots ?? []).map(fileOf).join('\n'),
    pcr: Object.entries(demands.pcrs ?? {})
      .map(([index, hex]) => `${index}=${hex}`)
      .join('\n'),
    configuration: (demands.configurations ?? []).join('\n'),
  }
}

let workspace: string
let program: string
beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-program-'))
  program = join(folder, 'affidavit')
  await writeFile(program, `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`)
  await chmod(program, 0o755)
})
afterAll(() => rm(dirname(program), { recursive: true }))
beforeEach(async () => {
  workspace = await mkdtemp(join(tmpdir(), 'affidavit-action-'))
  await mkdir(join(workspace, 'runner'))
})
afterEach(() => rm(workspace, { recursive: true }))

/** Runs the steps as the runner does: the inputs' values in place of the expressions of `env`. */
async function runAction(
  given: Readonly<Record<string, string>>,
  more: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const values: Record<string, string> = {}
  for (const [name, input] of Object.entries(inputs))
    values[`inputs.${name}`] = given[name] ?? input.default ?? ''
  let printed = ''
  for (const { id, run, env } of steps) {
    const place = (name: string) => join(workspace, 'runner', `${id}-${name}`)
    const script = place('script.sh')
    await writeFile(script, run)
    await writeFile(place('output'), '')
    const child = spawn('bash', ['--noprofile', '--norc', '-eo', 'pipefail', script], {
      cwd: workspace,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
        ...more,
        GITHUB_ACTION_PATH: ACTION,
        GITHUB_WORKSPACE: workspace,
        RUNNER_TEMP: join(workspace, 'runner'),
        GITHUB_OUTPUT: place('output'),
        GITHUB_STEP_SUMMARY: place('summary'),
        ...Object.fromEntries(
          Object.entries(env).map(([name, expression]) => {
            const [, key = ''] = /^\$\{\{ ([\w.-]+) \}\}$/.exec(expression) ?? []
            return [name, values[key] ?? '']
          }),
        ),
      },
    })
    child.stdout.on('data', (text) => {
      printed += text
    })
    child.stderr.on('data', (text) => {
      printed += text
    })
    const [code] = (await once(child, 'close')) as [number | null]
    const set = readOutputs(readFileSync(place('output'), 'utf8'))
    for (const [name, value] of Object.entries(set)) values[`steps.${id}.outputs.${name}`] = value
    if (code !== 0 || id === 'check') {
      const summary = existsSync(place('summary')) ? readFileSync(place('summary'), 'utf8') : ''
      return { code, printed, outputs: set, summary }
    }
  }
  throw new Error('expected a step check')
}

/** Outputs as the runner reads them: `name<<end`, lines, `end`. */
function readOutputs(text: string): Readonly<Record<string, string>> {
  const lines = text.split('\n')
  const found: Record<string, string> = {}
  for (let at = 0; at < lines.length - 1; ) {
    const [, name = '', end = ''] = /^([^=<]+)<<(.+)$/.exec(lines[at] ?? '') ?? []
    const stop = lines.indexOf(end, at + 1)
    if (name === '' || stop < 0) throw new Error(`not an output: ${lines[at]}`)
    found[name] = lines.slice(at + 1, stop).join('\n')
    at = stop + 1
  }
  return found
}

describe('the action', () => {
  it('the action verifies a bundle and tells its verdict, its report and each check', async () => {
    const { code, outputs: set, summary } = await runAction({ program, ...caseOf('bundle/whole') })
    expect(code).toBe(0)
    expect(set).toEqual({ verdict: 'verified', report: expect.any(String) })
    expect(JSON.parse(readFileSync(set.report ?? '', 'utf8'))).toMatchObject({
      ok: true,
      bundle: { verdict: 'verified' },
    })
    expect(summary).toMatch(/^### Evidence: verified$/m)
    expect(summary).toContain('<tr><td>passed</td><td>anchor time</td>')
  })

  it('the action takes one policy in place of the single ones', async () => {
    const { bundle, root, pcr, configuration } = caseOf('bundle/whole')
    const enclaves = {
      measurements: Object.fromEntries(pcr.split('\n').map((line) => `PCR${line}`.split('='))),
      configurations: configuration,
      roots: parseRoots(readFileSync(root)).map((digest) => Buffer.from(digest).toString('hex')),
    }
    const policyFile = join(workspace, 'policy.json')
    await writeFile(policyFile, JSON.stringify({ enclaves }))
    const { code, outputs: set } = await runAction({ program, bundle, policy: policyFile })
    expect([code, set.verdict]).toEqual([0, 'verified'])
  })

  it('the action checks the provider of a bundle against a policy', async () => {
    const policy = join(import.meta.dirname, '../../docs/provider-policies/nitro.json')
    const given = { program, policy }
    const { code, summary } = await runAction({ ...given, ...caseOf('bundle/whole') })
    expect(code).toBe(1)
    expect(summary).toMatch(/<td>not checked<\/td><td>provider attested<\/td>/)
  })

  it('the summary of a session has its checks, and the failed checks of its calls', async () => {
    const { bundle, ...expected } = caseOf('bundle/anchor-outcome/reverted')
    const session = join(workspace, 'session.json')
    const line = `${JSON.stringify(JSON.parse(readFileSync(bundle, 'utf8')))}\n`
    await writeFile(session, line.repeat(2))
    const { outputs: set, summary } = await runAction({ program, ...expected, bundle: session })
    expect(set.verdict).toBe('invalid')
    expect(summary).toContain('<tr><td>failed</td><td>evidence of calls</td>')
    expect(summary).toContain('<tr><td>failed</td><td>anchor outcome</td>')
  })

  it('the action fails the step for an incomplete bundle unless require is incomplete', async () => {
    const { root, bundle } = caseOf('bundle/whole')
    const refused = await runAction({ program, bundle, root })
    expect(refused).toMatchObject({ code: 1, outputs: { verdict: 'incomplete' } })
    expect(refused.printed).toMatch(/::error .*INCOMPLETE: .*\(require is verified\)/)
    const taken = await runAction({ program, bundle, root, require: 'incomplete' })
    expect(taken).toMatchObject({ code: 0, outputs: { verdict: 'incomplete' } })
  })

  it('the action gives the verdict failed for a bundle that cannot be read', async () => {
    const {
      code,
      outputs: set,
      printed,
    } = await runAction({
      program,
      bundle: caseOf('bundle/unreadable/cut').bundle,
    })
    expect(code).toBe(1)
    expect(set.verdict).toBe('failed')
    expect(printed).toMatch(/^::error title=Affidavit::no report: affidavit: /m)
  })

  it.each<[string, Readonly<Record<string, string>>, RegExp]>([
    ['neither version nor program', { bundle: 'x' }, /one of the inputs version and program/],
    ['a version that is a range', { bundle: 'x', version: '^1.0.0' }, /exact version/],
    ['a version that is options', { bundle: 'x', version: '1.0.0 --registry=x' }, /exact version/],
    ['a version without its digest', { bundle: 'x', version: '1.0.0' }, /integrity: expected the/],
    [
      'a digest of a program that is there',
      { bundle: 'x', program: './nothing', integrity: '00'.repeat(32) },
      /expected version with it/,
    ],
  ])('the action refuses wrong inputs about its program: %s', async (_, given, message) => {
    const { code, printed } = await runAction(given)
    expect(code).toBe(1)
    expect(printed).toMatch(message)
  })

  it.each<[string, Readonly<Record<string, string>>, RegExp]>([
    ['neither bundle nor url', {}, /one of the inputs bundle and url/],
    ['standard input', { bundle: '-' }, /nothing is on standard input/],
    ['a key without its gateway', { bundle: 'x', 'api-key': 'k' }, /expected the url/],
    ['a timeout of nothing', { bundle: 'x', 'timeout-minutes': '0' }, /from 1 to 360/],
    [
      'an answer to compare in an audit',
      { url: 'http://127.0.0.1:1', answer: 'x' },
      /a bundle with/,
    ],
  ])('the action refuses wrong inputs about its check: %s', async (_, given, message) => {
    const { code, printed } = await runAction({ program, ...given })
    expect(code).toBe(1)
    expect(printed).toMatch(message)
  })

  describe('with the version of a package', () => {
    const VERSION = '1.2.3'
    const run = `import { spawnSync } from 'node:child_process'
const { status } = spawnSync(process.execPath, [${JSON.stringify(MAIN)}, ...process.argv.slice(2)], { stdio: 'inherit' })
process.exit(status ?? 1)
`
    let registry: PackageRegistry
    let file: Buffer
    beforeAll(async () => {
      file = await packProgram(VERSION, run)
      registry = await startPackageRegistry(VERSION, file)
    })
    afterAll(() => registry.close())
    beforeEach(() => {
      registry.file = file
      registry.fetched = 0
    })

    const digests = () => ({
      sha512: `sha512-${createHash('sha512').update(file).digest('base64')}`,
      sha256: createHash('sha256').update(file).digest('hex'),
    })
    const start = (integrity: string) =>
      runAction(
        { version: VERSION, integrity, ...caseOf('bundle/whole'), require: 'incomplete' },
        {
          npm_config_registry: registry.url,
          npm_config_cache: join(workspace, 'runner', 'cache'),
          HOME: join(workspace, 'runner'),
        },
      )

    it.each(['sha512', 'sha256'] as const)(
      'the action installs and runs a package with the expected %s digest',
      async (algorithm) => {
        const { code, outputs: set } = await start(digests()[algorithm])
        expect(set.verdict).toMatch(/^(verified|incomplete)$/)
        expect(code).toBe(0)
        expect(registry.fetched).toBeGreaterThan(0)
      },
    )

    it.each(['sha512', 'sha256'] as const)(
      'the action runs nothing of a package with another %s digest',
      async (algorithm) => {
        const expected = digests()[algorithm]
        const pwned = join(workspace, 'pwned')
        registry.file = await packProgram(
          VERSION,
          `import { writeFileSync } from 'node:fs'\nwriteFileSync(${JSON.stringify(pwned)}, '')\n`,
        )
        const { code, printed, outputs: set } = await start(expected)
        expect(code).toBe(1)
        expect(printed).toContain(`integrity: expected the file of affidavit@${VERSION} to be`)
        expect(set).toEqual({})
        expect(existsSync(pwned)).toBe(false)
      },
    )
  })

  const HOSTILE = [
    '$(touch pwned)',
    '`touch pwned`',
    '"; touch pwned; "',
    "'; touch pwned; '",
    '| touch pwned',
    'x\ntouch pwned\n',
    'x\nverdict<<end\nverified\nend',
    '\n::set-output name=verdict::verified\n::add-mask::x',
    '--any-measurement',
    '--help',
    `\${{ secrets.X }}`,
    '%0A::error::x',
  ]
  const names = Object.keys(inputs)

  it.each(names)(
    'a hostile input %s verifies nothing and makes the action do nothing else',
    async (name) => {
      const good = { program, ...caseOf('bundle/whole') }
      const { code, outputs: set, printed } = await runAction({ ...good, [name]: HOSTILE.join('') })
      expect(code).toBe(1)
      const reported = ['verdict', 'report', 'program']
      expect(Object.keys(set).filter((key) => !reported.includes(key))).toEqual([])
      expect(set.verdict ?? 'failed').not.toBe('verified')
      expect(commandsOf(printed)).toEqual([expect.stringMatching(/^::error title=Affidavit::/)])
      expect(readdirSync(workspace).filter((file) => !file.startsWith('runner'))).toEqual([])
    },
  )

  it.each(['bundle', 'root', 'pcr', 'rpc'])(
    'the input %s is never taken for an option of the program',
    async (name) => {
      const { bundle, root } = caseOf('bundle/whole')
      const given = { program, bundle, root, require: 'incomplete', [name]: '--any-measurement' }
      expect(await runAction(given)).toMatchObject({ code: 1, outputs: { verdict: 'failed' } })
    },
  )

  it('the action writes no Markdown, HTML or command from what evidence says', async () => {
    const hostile = join(workspace, 'runner', 'hostile.json')
    const bundle = JSON.parse(readFileSync(caseOf('bundle/whole').bundle, 'utf8'))
    const name = '<img src=x onerror=alert(1)> | ![x](http://evil.example) `x`\n::set-output x=y'
    await writeFile(hostile, JSON.stringify({ ...bundle, [name]: 1, format: name, version: name }))
    const { code, summary, printed, outputs: set } = await runAction({ program, bundle: hostile })
    expect(code).toBe(1)
    expect(set.verdict).toBe('invalid')
    expect(summary).not.toMatch(/<img|!\[|\]\(http/)
    expect(summary).toMatch(/^### Evidence: invalid$/m)
    expect(commandsOf(printed)).toEqual([expect.stringMatching(/^::error title=Affidavit::/)])
  })

  it('the action sends the API key to the gateway at url and to no other address', async () => {
    const seen: (string | undefined)[] = []
    const server = createServer((request, response) => {
      seen.push(request.headers.authorization)
      response.writeHead(404, { 'content-type': 'application/json' }).end('{}')
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    try {
      const key = { program, 'api-key': 'secret-of-mine' }
      const hash = await runAction({ ...key, url, bundle: 'ab'.repeat(32) })
      expect(hash.outputs.verdict).toBe('failed')
      expect(new Set(seen)).toEqual(new Set(['Bearer secret-of-mine']))
      const audit = await runAction({ ...key, url })
      expect(audit.code).toBe(1)
      expect(seen.length).toBeGreaterThan(1)
      seen.length = 0
      const elsewhere = 'https://127.0.0.1:1'
      await runAction({ ...key, url: elsewhere, bundle: `${url}/bundle.json` })
      expect(seen).toEqual([undefined])
      expect(hash.printed + audit.printed).not.toContain('secret-of-mine')
    } finally {
      server.close()
    }
  })
})

/** The lines that the runner would take for commands. */
function commandsOf(printed: string): readonly string[] {
  const found: string[] = []
  let stopped: string | null = null
  for (const line of printed.split(/\r?\n/)) {
    const [, token = null] = /^::stop-commands::(.+)$/.exec(line) ?? []
    if (stopped === null && token !== null) stopped = token
    else if (stopped !== null && line === `::${stopped}::`) stopped = null
    else if (stopped === null && /^\s*::/.test(line)) found.push(line)
  }
  return found
}
