import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { isExpected, readSteps } from './page.ts'
import { type Walked, type WalkOptions, walkText } from './walk.ts'

const page = (...parts: readonly string[]) => parts.join('\n\n')
const sh = (command: string) => `\`\`\`sh\n${command}\n\`\`\``
const text = (output: string) => `\`\`\`text\n${output}\n\`\`\``

async function walkAll(markdown: string, options: WalkOptions = {}) {
  let walked: readonly Walked[] = []
  await walkText(markdown, options, async (walk) => {
    walked = await walk.rest()
  })
  return walked
}

describe('a page', () => {
  it('a page has its sh blocks as steps, each with the text block that follows at once', () => {
    const steps = readSteps(
      page(
        '# A',
        sh('a'),
        text('one'),
        '## B',
        sh('b'),
        'It prints:',
        text('no'),
        '  ```sh\n  c\n  ```',
      ),
    )
    expect(steps.map(({ section, command, expected }) => [section, command, expected])).toEqual([
      ['A', 'a', 'one'],
      ['B', 'b', null],
      ['B', 'c', null],
    ])
  })

  it.each([
    ['a 1 b', 'a … b', true],
    ['a\nb', 'a…b', false],
    ['first\nx\ny\nlast\n', 'first\n…\nlast', true],
    ['first\nlast', 'first\n…\nlast', true],
    ['only', 'only\n…', true],
    ['a.b', 'a.b', true],
    ['axb', 'a.b', false],
    ['more than a', 'a', false],
  ])(
    'isExpected compares the output %j with the expected %j and gives %s',
    (output, expected, isSo) => {
      expect(isExpected(output, expected)).toBe(isSo)
    },
  )
})

describe('a walk', () => {
  it('a walk runs the steps in one bash, compares what they print and serves commands', async () => {
    const calls: (readonly string[])[] = []
    const walked = await walkAll(
      page(
        sh('name=world\necho hello $name > /etc/affidavit/greeting'),
        sh('systemctl restart "affidavit gateway"\ncat /etc/affidavit/greeting'),
        text('restarted\nhello …'),
        sh('echo /etc/affidavit/x; systemctl fail || echo "code $?"'),
        text('/etc/affidavit/x\ncode 3'),
      ),
      {
        commands: {
          systemctl(words) {
            calls.push(words)
            return words[0] === 'fail' ? { code: 3 } : { output: 'restarted\n' }
          },
        },
      },
    )
    expect(calls).toEqual([['restart', 'affidavit gateway'], ['fail']])
    expect(walked.map(({ output }) => output)[1]).toBe('restarted\nhello world\n')
  })

  it('a walk has `affidavit`, and from the environment only what it is given', async () => {
    const [step] = await walkAll(page(sh('affidavit --version; env | cut -d= -f1 | sort')), {
      variables: { DATABASE_URL: 'postgres://x' },
    })
    expect(step?.output).toMatch(/^\d+\.\d+\.\d+\n/)
    expect(step?.output).toContain('\nDATABASE_URL\n')
    expect(step?.output).not.toContain('VITEST')
  })

  it.each([
    ['a step that fails', sh('echo before; false; echo after'), 'a step failed with 1'],
    ['a step in a pipe that fails', sh('false | cat'), 'a step failed with 1'],
    ['a variable that is not set', sh('echo $nothing'), 'nothing: unbound variable'],
    ['other output', page(sh('echo 2'), text('1')), 'got\n2'],
    ['a page without steps', 'nothing', 'expected a page with steps'],
  ])('a walk rejects %s', async (_, markdown, message) => {
    await expect(walkAll(markdown)).rejects.toThrow(message)
  })

  it('a walk goes section by section and rejects when a section is left out', async () => {
    const markdown = page('# A', sh('a=1'), '# B', sh('echo $a'), '# C', sh('true'))
    await expect(
      walkText(markdown, {}, async (walk) => {
        await walk.section('A')
        await expect(walk.section('C')).rejects.toThrow('step to be of "C", got B')
        expect((await walk.section('B'))[0]?.output).toBe('1\n')
      }),
    ).rejects.toThrow('1 of 3 steps not walked, from line 15')
  })
})

describe('the runbooks', () => {
  const folder = join(import.meta.dirname, '../../deploy/runbooks')
  const pages = readdirSync(folder).filter((name) => name !== 'README.md')

  it('a page that changes a setting checks that gateway.env has the new value', () => {
    const commands = pages
      .flatMap((name) => readSteps(readFileSync(join(folder, name), 'utf8')))
      .flatMap(({ command }) => command.split('\n'))
    const after = commands.flatMap((line, at) =>
      /^sed -i .*gateway\.env$/.test(line) ? [commands[at + 1]] : [],
    )
    expect(after.length).toBeGreaterThanOrEqual(6)
    expect(after.filter((line) => !/^grep .*gateway\.env$/.test(line ?? ''))).toEqual([])
  })

  it('every runbook is in the table of their README', () => {
    const table = readFileSync(join(folder, 'README.md'), 'utf8')
    const named = [...table.matchAll(/^\| \[.*?\]\(([\w-]+\.md)\)/gm)].map(([, name]) => name)
    expect(named.toSorted()).toEqual(pages.toSorted())
  })

  it('every runbook has a test that walks it', () => {
    const tests = readdirSync(import.meta.dirname)
      .filter((name) => /\.(slow|nightly)\.test\.ts$/.test(name))
      .map((name) => readFileSync(join(import.meta.dirname, name), 'utf8'))
    const isWalked = (slug: string) => new RegExp(`(walkPage\\(\\s*'|runbooks/)${slug}['.]`)
    const tested = pages.filter((name) =>
      tests.some((text) => isWalked(name.replace('.md', '')).test(text)),
    )
    expect(tested).toEqual(pages)
  })
})
