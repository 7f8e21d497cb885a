import './playground.css'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Affidavit, Proof } from '#client/index.ts'
import { usePolicy } from '../../kit/tab-policy.ts'
import { useLoaded } from '../../kit/use-loaded.ts'
import { takeDevelopmentPolicy } from '../../verify/development-policy.ts'
import { fillHere } from '../../verify/fill-here.ts'
import type { FormPolicy } from '../../verify/job.ts'
import { useSession } from '../session.ts'
import type { Message } from './chat.ts'
import { Composer } from './composer.tsx'
import { type EnclaveConnection, ExpectedPanel } from './expected-panel.tsx'
import { FIRST_ASKED, type ModelChoice, ModelForm, type ModelList, modelOf } from './model-form.tsx'
import type { Answer, Turn, TurnAnchor } from './turn.ts'
import { TurnView } from './turn-view.tsx'
import { WhoAnswers } from './who-answers.tsx'

const loadChat = () => import('./chat.ts')

/** The conversation scrolls with new text if the view is at most this far from the end. */
const END_PX = 40

/** Verified chat. The client runs in this page, and the page shows what the client checks. */
export function PlaygroundPart() {
  const session = useSession()
  const [asked, setAsked] = useState<ModelChoice>(FIRST_ASKED)
  const { isEncrypted } = asked
  const { connection, reconnect } = useConnection(isEncrypted)
  const models = useLoaded(
    (signal) => session.ask<ModelList>('/v1/verified/models', { signal }),
    [session],
  )
  const { turns, isRunning, said, send, stop, lookAgain, clear } = useTurns(session.key)
  const log = useRef<HTMLElement>(null)
  const model = modelOf(asked, models.value)
  // True while the view scrolls with new text. False after the reader scrolled up.
  const isFollowed = useRef(true)
  const lastTop = useRef(0)
  useEffect(() => {
    isFollowed.current = true
  }, [turns.length])
  useEffect(() => {
    const { current } = log
    if (current !== null && isFollowed.current) current.scrollTop = current.scrollHeight
  }, [turns])
  const follow = () => {
    const { scrollHeight = 0, scrollTop = 0, clientHeight = 0 } = log.current ?? {}
    const isAtEnd = scrollHeight - scrollTop - clientHeight < END_PX
    // `scrollTop` is smaller only after the reader scrolled up. New text does not change it.
    if (isAtEnd || scrollTop < lastTop.current) isFollowed.current = isAtEnd
    lastTop.current = scrollTop
  }

  return (
    <>
      <h1 tabIndex={-1}>Playground</h1>
      <div class="playground">
        <WhoAnswers model={model} connection={connection}>
          <ModelForm asked={asked} models={models} isRunning={isRunning} onChange={setAsked} />
          <ExpectedPanel connection={connection} onRetry={() => void reconnect()} />
        </WhoAnswers>
        <div class="chat">
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must reach what scrolls. */}
          <section class="turns" aria-label="Conversation" tabIndex={0} ref={log} onScroll={follow}>
            {turns.length === 0 && (
              <p class="faint">
                Chat at the model providers, through an enclave that signs what was asked and
                answered. Every check is made here, in your browser.
              </p>
            )}
            {turns.map((turn) => (
              <TurnView key={turn.id} turn={turn} onLookAgain={() => lookAgain(turn)} />
            ))}
          </section>
          <p class="hidden-text" role="status">
            {said}
          </p>
          <Composer
            isRunning={isRunning}
            canSend={connection.kind === 'ready' && model !== ''}
            hasTurns={turns.length > 0}
            onSend={(question) => {
              if (connection.kind !== 'ready') return
              const { affidavit, isDevelopment } = connection
              const credential = asked.credential.trim()
              void send(affidavit, { question, model, credential, isEncrypted, isDevelopment })
            }}
            onStop={stop}
            onClear={clear}
          />
        </div>
      </div>
    </>
  )
}

/** Connects again when the policy changes: the enclaves must then pass the checks again. */
function useConnection(isEncrypted: boolean) {
  const { key } = useSession()
  const { kind, policy } = usePolicy().inForce
  const [connection, setConnection] = useState<EnclaveConnection>({ kind: 'none' })
  const [round, setRound] = useState(0)
  useEffect(() => {
    if (!namesCode(policy)) {
      setConnection({ kind: 'none' })
      return
    }
    const abort = new AbortController()
    const { signal } = abort
    const connectOnce = async () => {
      setConnection({ kind: 'connecting' })
      const { openClient, AnswerRefused } = await loadChat()
      try {
        const opened = await openClient({ key, policy, isEncrypted, signal })
        if (!signal.aborted)
          setConnection({ kind: 'ready', ...opened, isGatewaysWord: kind === 'development' })
      } catch (fault) {
        if (signal.aborted) return
        if (fault instanceof AnswerRefused)
          setConnection({ kind: 'refused', refusal: fault.refusal })
        else setConnection({ kind: 'failed', fault })
      }
    }
    connectOnce().catch((fault: unknown) => {
      if (!signal.aborted) setConnection({ kind: 'failed', fault })
    })
    return () => abort.abort()
  }, [policy, isEncrypted, key, round])
  const reconnect = async () => {
    // A development gateway that was restarted has new enclaves.
    if (kind === 'development') await takeDevelopmentPolicy(fillHere)
    setRound(round + 1)
  }
  return { connection, reconnect }
}

/**
 * The page can ask the enclaves only if the policy names code. A release key alone names no
 * code, because the reader may type a key before choosing a release.
 */
function namesCode({ releases, measurements, anyMeasurement }: FormPolicy): boolean {
  return releases.length > 0 || measurements.trim() !== '' || anyMeasurement
}

/** Only one call runs at a time, but the page still waits for the anchors of earlier calls. */
function useTurns(key: string) {
  const [turns, setTurns] = useState<readonly Turn[]>([])
  const [isRunning, setIsRunning] = useState(false)
  const [said, setSaid] = useState('')
  const running = useRef<AbortController | null>(null)
  const gone = useRef(new AbortController())
  const nextId = useRef(1)
  /** For each turn: the client to ask for the anchor of the turn's answer. */
  const clients = useRef(new Map<number, Affidavit>())
  useEffect(() => () => gone.current.abort(), [])

  const change = (id: number, changes: Partial<Turn>) =>
    setTurns((all) => all.map((turn) => (turn.id === id ? { ...turn, ...changes } : turn)))

  async function send(
    affidavit: Affidavit,
    {
      question,
      model,
      credential,
      ...made
    }: Pick<Turn, 'question' | 'model' | 'isEncrypted' | 'isDevelopment'> &
      Pick<ModelChoice, 'credential'>,
  ): Promise<void> {
    const id = nextId.current++
    const abort = new AbortController()
    running.current = abort
    const signal = AbortSignal.any([abort.signal, gone.current.signal])
    clients.current.set(id, affidavit)
    setIsRunning(true)
    setSaid('The answer is coming.')
    const answer: Answer = { kind: 'arriving' }
    setTurns((all) => [...all, { id, question, model, ...made, text: '', answer }])
    const messages = [...turns.flatMap(messagesOf), { role: 'user', content: question } as const]
    const show = createPainter((text) => change(id, { text }))
    const { ask, AnswerRefused } = await loadChat()
    try {
      const call = { key, credential, model, messages, signal, onText: show.later }
      const proof = await ask(affidavit, call)
      const text = show.now()
      setSaid(`Every check passed. The answer: ${text.slice(0, SAID_MAX)}`)
      void anchor(id, proof)
    } catch (fault) {
      show.now()
      if (abort.signal.aborted) {
        change(id, { answer: { kind: 'stopped' } })
        setSaid('Stopped.')
      } else if (fault instanceof AnswerRefused) {
        change(id, { answer: { kind: 'refused', refusal: fault.refusal } })
        setSaid('The answer was refused.')
      } else {
        change(id, { answer: { kind: 'failed', fault } })
        setSaid('')
      }
    } finally {
      running.current = null
      setIsRunning(false)
    }
  }

  async function anchor(id: number, proof: Proof): Promise<void> {
    const affidavit = clients.current.get(id)
    if (affidavit === undefined) return
    const show = (state: TurnAnchor) =>
      change(id, { answer: { kind: 'checked', proof, anchor: state } })
    show({ kind: 'waiting' })
    const { awaitCallAnchor } = await loadChat()
    try {
      const evidence = await awaitCallAnchor(affidavit, proof, gone.current.signal)
      show({ kind: 'mined', evidence })
      setSaid('The answer is anchored.')
    } catch (fault) {
      if (!gone.current.signal.aborted) show({ kind: 'unknown', fault })
    }
  }

  return {
    turns,
    isRunning,
    said,
    send,
    stop: () => running.current?.abort(),
    lookAgain: ({ id, answer }: Turn) => {
      if (answer.kind === 'checked') void anchor(id, answer.proof)
    },
    clear: () => {
      setTurns([])
      setSaid('The conversation is empty.')
    },
  }
}

/** Characters that a screen reader reads aloud when an answer ends. */
const SAID_MAX = 500

/** Leaves out an answer that has not passed the checks. */
function messagesOf({ question, text, answer }: Turn): readonly Message[] {
  if (answer.kind !== 'checked') return []
  return [
    { role: 'user', content: question },
    { role: 'assistant', content: text },
  ]
}

/** Shows new text at most once in each frame of the screen. */
function createPainter(paint: (text: string) => void) {
  let latest = ''
  let frame: number | null = null
  const now = () => {
    if (frame !== null) cancelAnimationFrame(frame)
    frame = null
    paint(latest)
    return latest
  }
  const later = (text: string) => {
    latest = text
    frame ??= requestAnimationFrame(now)
  }
  return { later, now }
}
