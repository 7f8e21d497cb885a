import './verify.css'
import { showPage } from '../kit/frame.tsx'
import { VerifyPage } from './verify-page.tsx'

showPage(<VerifyPage />)
