import type { GivenPolicy } from './job.ts'

/**
 * A link to this page may carry these parts of a policy, but never evidence or content. The maker
 * of the evidence may have written the link. So a link cannot make the page trust more (roots, any
 * code, debug mode, cut answers), or call a chain's endpoint. The texts are in the fragment of the
 * URL, which browsers do not send.
 */
const LINKED = ['releaseKeys', 'releaseSigners', 'measurements', 'configurations'] as const

export type Linked = Pick<GivenPolicy, (typeof LINKED)[number]>

/** Characters of a member's text in a link. */
const MEMBER_LENGTH_MAX = 8_000

/** Empty without these parts. */
export function writeFragment(policy: GivenPolicy): string {
  const parameters = new URLSearchParams(
    LINKED.flatMap((name) => {
      const text = policy[name].trim()
      return text === '' ? [] : [[name, text] as [string, string]]
    }),
  )
  const text = parameters.toString()
  return text === '' ? '' : `#${text}`
}

/**
 * A text from the link replaces the reader's text, unless it lowers the number of signers. A number
 * that is not valid counts as 0.
 */
export function takeLinked<Own extends GivenPolicy>(own: Own, linked: Linked): Own {
  const said = Object.fromEntries(Object.entries(linked).filter(([, text]) => text !== ''))
  const isFewer = countOf(linked.releaseSigners) < countOf(own.releaseSigners)
  const isKept = own.releaseSigners.trim() !== '' && isFewer
  return { ...own, ...said, ...(isKept ? { releaseSigners: own.releaseSigners } : {}) }
}

/** 0 for a text that is not a number. */
function countOf(text: string): number {
  return /^\d+$/.test(text.trim()) ? Number(text) : 0
}

/** An attacker may control the fragment. Null when it carries none of them. */
export function readFragment(fragment: string): Linked | null {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ''))
  const textOf = (name: (typeof LINKED)[number]) =>
    (parameters.get(name) ?? '').slice(0, MEMBER_LENGTH_MAX)
  const linked: Linked = {
    releaseKeys: textOf('releaseKeys'),
    releaseSigners: textOf('releaseSigners'),
    measurements: textOf('measurements'),
    configurations: textOf('configurations'),
  }
  return Object.values(linked).some((text) => text !== '') ? linked : null
}
