import type { Expectations } from './job.ts'

/**
 * What a link to this page may say: texts that are compared with evidence. Never the evidence or
 * any content; and nothing that would widen what is trusted (roots, any code, debug mode, cut
 * answers) or have somebody asked (a chain's endpoint): a link may come from whoever made the
 * evidence. It stands in the fragment, which browsers do not send.
 */
const LINKED = ['releaseKeys', 'releaseSigners', 'measurements', 'configurations'] as const

export type Linked = Pick<Expectations, (typeof LINKED)[number]>

/** Longest text of one member of a link, characters. */
const MEMBER_LENGTH_MAX = 8_000

/** Gives the fragment that says these expectations; empty when there are none to say. */
export function writeFragment(expectations: Expectations): string {
  const parameters = new URLSearchParams(
    LINKED.flatMap((name) => {
      const text = expectations[name].trim()
      return text === '' ? [] : [[name, text] as [string, string]]
    }),
  )
  const text = parameters.toString()
  return text === '' ? '' : `#${text}`
}

/**
 * Gives the reader's own texts with what a link says in their place, where it says something. The
 * number of signers is never lowered by a link, nor by one that says no number.
 */
export function takeLinked<Own extends Expectations>(own: Own, linked: Linked): Own {
  const said = Object.fromEntries(Object.entries(linked).filter(([, text]) => text !== ''))
  const isFewer = countOf(linked.releaseSigners) < countOf(own.releaseSigners)
  const isKept = own.releaseSigners.trim() !== '' && isFewer
  return { ...own, ...said, ...(isKept ? { releaseSigners: own.releaseSigners } : {}) }
}

/** 0 for what is no number. */
function countOf(text: string): number {
  return /^\d+$/.test(text.trim()) ? Number(text) : 0
}

/** Gives what an attacker-controlled fragment says; null when it says nothing of this. */
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
