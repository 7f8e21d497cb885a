import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Busy, FaultNotice } from '../kit/notices.tsx'

type Action = {
  readonly isActing: boolean
  readonly fault: unknown
  /** Resolves to true if `act` succeeded. An error becomes `fault`. */
  readonly run: (act: () => Promise<void>) => Promise<boolean>
  readonly reset: () => void
}

/** Runs one act at a time. */
export function useAction(): Action {
  const [isActing, setIsActing] = useState(false)
  const [fault, setFault] = useState<unknown>(null)
  const run = async (act: () => Promise<void>) => {
    setFault(null)
    setIsActing(true)
    try {
      await act()
      return true
    } catch (refused) {
      setFault(refused)
      return false
    } finally {
      setIsActing(false)
    }
  }
  return { isActing, fault, run, reset: () => setFault(null) }
}

export function ActionState({
  action: { isActing, fault },
  what,
  children,
}: {
  readonly action: Action
  readonly what: string
  /** Replaces the general advice about the fault. */
  readonly children?: ComponentChildren
}) {
  return (
    <>
      {isActing && <Busy what={what} />}
      {fault !== null && <FaultNotice fault={fault}>{children}</FaultNotice>}
    </>
  )
}
