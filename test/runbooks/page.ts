/** A ```sh block of a page, and what the page says it prints. */
export type Step = {
  /** The heading that it stands under, without its number signs. */
  readonly section: string
  readonly command: string
  /** The ```text block right after it; null without one. */
  readonly expected: string | null
  /** Line of the page that the block begins in, from 1. */
  readonly line: number
}

/**
 * Gives the steps of a page in its order. Only ```sh blocks are steps, and a ```text block is
 * expected output where nothing but empty lines stands between it and its step.
 */
export function readSteps(markdown: string): readonly Step[] {
  const steps: Step[] = []
  let section = ''
  let follows = false
  const lines = markdown.split('\n')
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? ''
    const [, indent = '', language] = /^( *)```(\w*)$/.exec(line) ?? []
    if (language === undefined) {
      if (line.trim() !== '') follows = false
      section = /^#+ (.*)$/.exec(line)?.[1] ?? section
      continue
    }
    const end = lines.indexOf(`${indent}\`\`\``, at + 1)
    if (end === -1) throw new Error(`expected an end of the block that begins in line ${at + 1}`)
    const text = lines
      .slice(at + 1, end)
      .map((inner) => inner.slice(indent.length))
      .join('\n')
    const last = steps.at(-1)
    if (language === 'sh') steps.push({ section, command: text, expected: null, line: at + 1 })
    else if (language === 'text' && follows && last !== undefined)
      steps[steps.length - 1] = { ...last, expected: text }
    follows = language === 'sh'
    at = end
  }
  return steps
}

/**
 * Whether output is what a page shows: `…` stands for any text, also of several lines when it is
 * alone on its line. Space at ends of lines is nothing.
 */
export function isExpected(output: string, expected: string): boolean {
  const pattern = tidy(expected)
    .split('\n')
    .map((line) => (line.trim() === '…' ? '[^]*' : line.split('…').map(escapePattern).join('.*')))
    .join('\n')
    // Lines that stand for any number of lines may stand for none.
    .replaceAll('\n[^]*\n', '\n(?:[^]*\n)?')
    .replace(/\n\[\^\]\*$/, '(?:\n[^]*)?')
    .replace(/^\[\^\]\*\n/, '(?:[^]*\n)?')
  return new RegExp(`^${pattern}$`).test(tidy(output))
}

function tidy(text: string): string {
  return text.replace(/[ \t]+$/gm, '').replace(/^\n+|\n+$/g, '')
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
