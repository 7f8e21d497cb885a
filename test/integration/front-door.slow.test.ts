import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Block,
  isPrinted,
  listBlocks,
  listSteps,
  type Reader,
  startReader,
} from '../support/documents.ts'
import { needProgram } from '../support/needs.ts'

const ROOT = join(import.meta.dirname, '../..')
const PYTHON = needProgram('python3')

/** The longest time from the package in a folder to a checked answer. */
const DOOR_MS = 60_000

const blocksOf = (page: string): readonly Block[] =>
  listBlocks(readFileSync(join(ROOT, page), 'utf8'))
const [readme, calling, checking] = [
  blocksOf('README.md'),
  blocksOf('docs/calling.md'),
  blocksOf('docs/checking.md'),
]

/** The block of a page that contains these words. */
function blockWith(blocks: readonly Block[], words: string): Block {
  const block = blocks.find(({ text }) => text.includes(words))
  if (block === undefined) throw new Error(`expected a block with ${words}`)
  return block
}

/**
 * A newcomer on a machine with Node.js, npm and git: in a clone, then in a folder with only the
 * package and policy.json. Every command comes from the pages, and runs in their order.
 */
describe('the front door', () => {
  let folder: string
  let reader: Reader
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'affidavit-door-'))
    execFileSync('git', ['clone', '--quiet', ROOT, join(folder, 'affidavit')])
    const { PATH = '', HOME = folder } = process.env
    // The PATH of such a machine: without the Node.js of this checkout.
    const path = PATH.split(':').filter((one) => !one.includes('node_modules'))
    reader = startReader(join(folder, 'affidavit'), { PATH: path.join(':'), HOME })
  })
  afterAll(async () => {
    await reader.close()
    rmSync(folder, { recursive: true })
  })

  const follow = async (blocks: readonly Block[]) => {
    for (const block of blocks) await reader.follow(block)
  }

  it('a newcomer installs, starts and packs as the README says, and the clone stays as it was', async () => {
    const start = readme.indexOf(blockWith(readme, '$ npm install'))
    const shells = readme.slice(start).filter(({ language }) => language === 'console')
    expect(shells).toHaveLength(3)
    await follow(shells)
    expect(await reader.run('git -C ../affidavit status --short')).toBe('')
    expect(await reader.run('ls')).toBe('affidavit-0.1.0.tgz\npolicy.json\n')
  }, 600_000)

  it.skipIf(!PYTHON.isMet)(
    PYTHON.title(
      'a caller with nothing but the package gets checked answers in Python, by curl and in Node.js as docs/calling.md says',
    ),
    async () => {
      const node = calling.indexOf(blockWith(calling, '$ npm install openai'))
      const begin = performance.now()
      await follow(calling.slice(0, node))
      expect(performance.now() - begin).toBeLessThan(DOOR_MS)
      await follow(calling.slice(node))
    },
    300_000,
  )

  it.skipIf(!PYTHON.isMet)(
    PYTHON.title(
      'a caller with the packages openai and anthropic of Python gets checked answers, where pip installs them',
    ),
    async (context) => {
      const made = await reader.run(
        'python3 -m venv ../python && ../python/bin/pip install --quiet --retries 1 --timeout 15 openai anthropic && echo made',
      )
      if (!made.endsWith('made\n')) context.skip('pip installs nothing here')
      for (const name of ['openai', 'responses', 'anthropic']) {
        const block = blockWith(calling, `$ python3 ask_${name}.py`)
        const text = block.text.replace('python3', '../python/bin/python3')
        await reader.follow({ ...block, info: '', text })
      }
    },
    300_000,
  )

  it('a reader with a mailed bundle gets VERIFIED as README.md and docs/checking.md say', async () => {
    const ask = `{"model":"demo/echo","messages":[{"role":"user","content":"Hello"}]}`
    const hash = await reader.run(
      `curl -sS "$AFFIDAVIT_URL/v1/verified/chat/completions" -H "Authorization: Bearer $AFFIDAVIT_API_KEY" -H 'Content-Type: application/json' -d '${ask}' | sed 's/.*"hash":"\\([0-9a-f]*\\)".*/\\1/'`,
    )
    // The mailed bundle has its block, which may take a while on a busy machine.
    await reader.run(
      `for i in $(seq 30); do npx affidavit evidence ${hash.trim()} --output evidence.json; grep -q '"block":{' evidence.json && break; sleep 1; done`,
    )
    await reader.run('unset AFFIDAVIT_URL AFFIDAVIT_API_KEY')
    const begin = performance.now()
    await reader.follow(blockWith(readme, 'affidavit verify evidence.json'))
    expect(performance.now() - begin).toBeLessThan(DOOR_MS)
    await follow(checking)
  }, 300_000)

  it('the README and docs/calling.md have the same proxy', () => {
    const command = listSteps(blockWith(readme, 'affidavit proxy').text)[0]?.command
    expect(command).toBe(listSteps(blockWith(calling, 'affidavit proxy').text)[0]?.command)
  })
})

describe('what a page prints', () => {
  it.each([
    ['a\nb\n', ['a', 'b'], true],
    ['a\nb\n', ['a'], false],
    ['a 17 c\n', ['a … c'], true],
    ['x\ny\na\nz\n', ['…', 'a', '…'], true],
    ['a\n', ['…', 'a', '…'], true],
    ['a.c\n', ['abc'], false],
    ['abc\n', ['a.c'], false],
    ['anything\n', [], true],
  ])('%j is held against %j', (output, printed, isSame) => {
    expect(isPrinted(output, printed)).toBe(isSame)
  })

  it('commands and the output below them are recognised', () => {
    expect(listSteps('$ a \\\n    b\nc\n\nd\n$ e\n')).toEqual([
      { command: 'a b', printed: ['c', '', 'd'] },
      { command: 'e', printed: [] },
    ])
  })
})
